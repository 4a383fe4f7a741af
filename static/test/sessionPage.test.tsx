// What a page of a session does with keys and clicks.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { ConfirmDock } from "../src/components/ConfirmDock";
import { Outbox } from "../src/components/Outbox";
import { Popover } from "../src/components/Popover";
import { Queue } from "../src/components/Queue";
import { StateLine } from "../src/components/StateLine";
import { TextField } from "../src/components/TextField";
import { Workspace } from "../src/components/Workspace";
import "../src/refocus";
import { current, show } from "../src/state/current";
import { AT_FIRST } from "../src/state/layout";
import { Script } from "./frames";
import { press, root, settled, shown, Stage, write } from "./stage";

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

test("a stop that was pressed shows at once", async () => {
  const stage = new Stage();
  const script = new Script().state("running");
  stage.play(script);
  await shown(<StateLine live={stage.live} />);
  press("Stop");
  await settled();
  assert.equal(root.querySelector(".state-text")?.textContent, "Stopping…");
  assert.equal(root.querySelector(".stop")?.textContent?.trim(), "Stopping…");
  stage.play(script.see("interrupted", "", { what: "the turn", stopped_ms: 12, rung: "asked", partial: false }).state("idle"));
  await settled();
  assert.equal(root.querySelector(".state-text")?.textContent, "Ready");
});

test("while the agent works Enter queues and Ctrl or ⌘ with it steers; else all is queued", async () => {
  const stage = new Stage();
  const script = new Script().state("running");
  stage.play(script);
  await shown(<Composer live={stage.live} />);
  const send = async (text: string, held: KeyboardEventInit = {}) => {
    await write(text);
    root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, ...held }));
    await settled();
  };
  await send("first");
  await send("second", { ctrlKey: true });
  await send("third", { metaKey: true });
  stage.play(script.state("idle"));
  await send("fourth", { ctrlKey: true });
  const said = stage.sent.map((wish) => wish.action === "message" && [wish.args.content, wish.args.mode]);
  assert.deepEqual(said, [["first", "queue"], ["second", "steer"], ["third", "steer"], ["fourth", "queue"]]);
});

test("of what is pasted the text is taken where there is one, else the files", async () => {
  const pasted: string[] = [];
  const take = (files: readonly File[]) => void pasted.push(...files.map(({ name }) => name));
  const field = { label: "Message", placeholder: "", value: "", rows: 1, sendLabel: "Send", sendDisabled: false };
  await shown(<TextField {...field} onChange={() => {}} onSend={() => {}} onFiles={take} />);
  const paste = (...types: string[]) => {
    const clipboardData = { files: [new File(["x"], "cells.png")], types };
    const event = Object.assign(new window.Event("paste", { bubbles: true, cancelable: true }), { clipboardData });
    root.querySelector("textarea")!.dispatchEvent(event);
    return event.defaultPrevented;
  };
  assert.equal(paste("text/plain", "text/html", "Files"), false, "the browser puts the text in");
  assert.equal(paste("text/html", "Files"), true);
  assert.equal(paste("text/plain", "Files"), true, "that text is the file's name");
  assert.deepEqual(pasted, ["cells.png", "cells.png"]);
});

test("an Enter that is held down sends once", async () => {
  let sent = 0;
  const field = { label: "Message", placeholder: "", value: "words", rows: 1, sendLabel: "Send", sendDisabled: false };
  await shown(<TextField {...field} onChange={() => {}} onSend={() => (sent += 1)} />);
  for (const repeat of [false, true, true]) {
    const key = new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, repeat });
    root.querySelector("textarea")!.dispatchEvent(key);
    assert.ok(key.defaultPrevented);
  }
  assert.equal(sent, 1);
});

test("Escape that an input method takes leaves a change as it is", async () => {
  const stage = new Stage();
  stage.play(new Script().see("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  await shown(<Queue live={stage.live} />);
  press("Edit");
  await settled();
  const escape = async (how: KeyboardEventInit) => {
    const key = new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true, ...how });
    root.querySelector("textarea")?.dispatchEvent(key);
    await settled();
    return root.querySelector("textarea") !== null;
  };
  assert.equal(await escape({ isComposing: true }), true);
  assert.equal(await escape({ keyCode: 229 }), true);
  assert.equal(await escape({}), false);
});

test("an open panel takes Escape wherever the focus is", async () => {
  await shown(<Popover label="About">{() => <p>plain text</p>}</Popover>);
  const escape = () => {
    const key = new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
    document.body.dispatchEvent(key);
    return key.defaultPrevented;
  };
  assert.equal(escape(), false, "it is closed");
  press("About");
  await settled();
  assert.equal(escape(), true);
  await settled();
  assert.equal(root.querySelector(".popover-panel"), null);
  assert.equal(escape(), false, "the next one stops what runs");
});

test("the tab of the workspace does not change under a person", async () => {
  const stage = new Stage();
  const view = () => shown(<Workspace live={stage.live} layout={AT_FIRST} onChange={() => {}} />);
  const tab = () => root.querySelector("[role=tab][aria-selected=true]")?.id;
  assert.doesNotMatch(await view(), /No plan yet/, "nobody knows");
  const script = new Script().act("user", "run", { command: "ls" }, { item: "r" });
  stage.play(script);
  stage.say({ status: "synced", seq: 1 });
  await view();
  assert.equal(tab(), "tab-commands");
  stage.play(script.act("agent", "plan", { content: "- [ ] look" }));
  await view();
  assert.equal(tab(), "tab-commands");
  render(null, root);
  await view();
  assert.equal(tab(), "tab-plan", "when it opens again");
});

test("a question, and a refusal, bring the conversation back that was folded away, once each", async () => {
  const stage = new Stage();
  const hide = show(stage.live);
  const { layout } = current.value!;
  const fold = () => (layout.value = { ...layout.value, folded: "chat" });
  fold();
  const script = new Script().see("confirm", "", { request: "q", action: "ls", risk: "low", options: ["allow", "deny"] });
  stage.play(script);
  await shown(<ConfirmDock live={stage.live} />);
  assert.equal(layout.value.folded, null);
  fold();
  stage.play(script.see("message", "meanwhile", {}));
  await settled();
  assert.equal(layout.value.folded, "chat", "the person wants it so");
  stage.live.pause();
  stage.say({ error: { code: "busy", message: "no" }, id: stage.sent[0]!.id });
  await shown(<Outbox live={stage.live} />);
  assert.equal(layout.value.folded, null);
  hide();
});

test("when what has the focus goes away, the message field has it", async () => {
  const stage = new Stage();
  const script = new Script().state("running");
  stage.play(script);
  await shown(<><StateLine live={stage.live} /><Composer live={stage.live} /></>);
  const focused = () => document.activeElement?.getAttribute("aria-label");
  const pause = () => [...root.querySelectorAll("button")].find((one) => one.textContent?.includes("Pause"))!;
  pause().focus();
  stage.play(script.state("paused"));
  await settled();
  assert.equal(focused(), "Message");
  stage.play(script.state("running"));
  await settled();
  pause().focus();
  document.body.dispatchEvent(new window.Event("pointerdown", { bubbles: true }));
  pause().blur();
  stage.play(script.state("idle"));
  await settled();
  assert.equal(document.activeElement, document.body, "who pressed beside all fields meant none");
});
