// Keys and clicks on a session page.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { ApprovalDock } from "../src/approvals/ApprovalDock";
import { RejectedRequests } from "../src/components/RejectedRequests";
import { Popover } from "../src/components/Popover";
import { Queue } from "../src/components/Queue";
import { StateLine } from "../src/components/StateLine";
import { TextField } from "../src/components/TextField";
import { Workspace } from "../src/components/Workspace";
import "../src/dom/restoreFocus";
import { currentSession, showSession } from "../src/state/currentSession";
import { DEFAULT_LAYOUT } from "../src/state/layout";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, write } from "./testSession";

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

test("pressed Interrupt shows at once", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("running");
  testSession.play(script);
  await renderText(<StateLine live={testSession.live} />);
  press("Interrupt");
  await settled();
  assert.equal(root.querySelector(".state-text")?.textContent, "Interrupting…");
  assert.equal(root.querySelector(".stop")?.textContent?.trim(), "Interrupting…");
  testSession.play(script.addObservation("interrupted", "", { what: "the turn", stopped_ms: 12, rung: "cancel", partial: false }).state("idle"));
  await settled();
  assert.equal(root.querySelector(".state-text")?.textContent, "Ready");
});

test("Enter queues and Ctrl or ⌘ with Enter steers only while the agent works", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("running");
  testSession.play(script);
  await renderText(<Composer live={testSession.live} />);
  const send = async (text: string, held: KeyboardEventInit = {}) => {
    await write(text);
    root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, ...held }));
    await settled();
  };
  await send("first");
  await send("second", { ctrlKey: true });
  await send("third", { metaKey: true });
  testSession.play(script.state("idle"));
  await send("fourth", { ctrlKey: true });
  const said = testSession.sent.map((request) => request.action === "message" && [request.args.content, request.args.mode]);
  assert.deepEqual(said, [["first", "queue"], ["second", "steer"], ["third", "steer"], ["fourth", "queue"]]);
});

test("paste takes the text if present and otherwise the files", async () => {
  const pasted: string[] = [];
  const take = (files: readonly File[]) => void pasted.push(...files.map(({ name }) => name));
  const field = { label: "Message", placeholder: "", value: "", rows: 1, sendLabel: "Send", sendDisabled: false };
  await renderText(<TextField {...field} onChange={() => {}} onSend={() => {}} onFiles={take} />);
  const paste = (...types: string[]) => {
    const clipboardData = { files: [new File(["x"], "cells.png")], types };
    const event = Object.assign(new window.Event("paste", { bubbles: true, cancelable: true }), { clipboardData });
    root.querySelector("textarea")!.dispatchEvent(event);
    return event.defaultPrevented;
  };
  assert.equal(paste("text/plain", "text/html", "Files"), false, "the browser inserts the text");
  assert.equal(paste("text/html", "Files"), true);
  assert.equal(paste("text/plain", "Files"), true, "the text is the file's name");
  assert.deepEqual(pasted, ["cells.png", "cells.png"]);
});

test("held Enter sends once", async () => {
  let sent = 0;
  const field = { label: "Message", placeholder: "", value: "words", rows: 1, sendLabel: "Send", sendDisabled: false };
  await renderText(<TextField {...field} onChange={() => {}} onSend={() => (sent += 1)} />);
  for (const repeat of [false, true, true]) {
    const key = new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, repeat });
    root.querySelector("textarea")!.dispatchEvent(key);
    assert.ok(key.defaultPrevented);
  }
  assert.equal(sent, 1);
});

test("Escape of an input method keeps the edit", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  await renderText(<Queue live={testSession.live} />);
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

test("open panel takes Escape from any focus", async () => {
  await renderText(<Popover label="About">{() => <p>plain text</p>}</Popover>);
  const escape = () => {
    const key = new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
    document.body.dispatchEvent(key);
    return key.defaultPrevented;
  };
  assert.equal(escape(), false, "the panel is closed");
  press("About");
  await settled();
  assert.equal(escape(), true);
  await settled();
  assert.equal(root.querySelector(".popover-panel"), null);
  assert.equal(escape(), false, "the next Escape interrupts");
});

test("workspace tab does not change by itself", async () => {
  const testSession = new TestSession();
  const view = () => renderText(<Workspace live={testSession.live} layout={DEFAULT_LAYOUT} onChange={() => {}} />);
  const tab = () => root.querySelector("[role=tab][aria-selected=true]")?.id;
  assert.doesNotMatch(await view(), /No plan yet/, "the plan is still unknown");
  const script = new FrameScript().addAction("user", "run", { command: "ls" }, { item: "r" });
  testSession.play(script);
  testSession.receive({ status: "synced", seq: 1 });
  await view();
  assert.equal(tab(), "tab-commands");
  testSession.play(script.addAction("agent", "plan", { content: "- [ ] look" }));
  await view();
  assert.equal(tab(), "tab-commands");
  render(null, root);
  await view();
  assert.equal(tab(), "tab-plan", "after reopening");
});

test("approval request and rejection each unfold the conversation once", async () => {
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  const { layout } = currentSession.value!;
  const fold = () => (layout.value = { ...layout.value, folded: "chat" });
  fold();
  const script = new FrameScript().addObservation("confirm", "", { request: "q", action: "ls", risk: { level: "low" }, options: ["allow", "deny"] });
  testSession.play(script);
  await renderText(<ApprovalDock live={testSession.live} />);
  assert.equal(layout.value.folded, null);
  fold();
  testSession.play(script.addObservation("message", "meanwhile", {}));
  await settled();
  assert.equal(layout.value.folded, "chat", "the user folded it again");
  testSession.live.pause();
  testSession.receive({ error: { code: "busy", message: "no" }, id: testSession.sent[0]!.id });
  await renderText(<RejectedRequests live={testSession.live} />);
  assert.equal(layout.value.folded, null);
  hide();
});

test("message field takes over a lost focus", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("running");
  testSession.play(script);
  await renderText(<><StateLine live={testSession.live} /><Composer live={testSession.live} /></>);
  const focused = () => document.activeElement?.getAttribute("aria-label");
  const pause = () => [...root.querySelectorAll("button")].find((one) => one.textContent?.includes("Pause"))!;
  pause().focus();
  testSession.play(script.state("paused"));
  await settled();
  assert.equal(focused(), "Message");
  testSession.play(script.state("running"));
  await settled();
  pause().focus();
  document.body.dispatchEvent(new window.Event("pointerdown", { bubbles: true }));
  pause().blur();
  testSession.play(script.state("idle"));
  await settled();
  assert.equal(document.activeElement, document.body, "a click outside of all fields clears the focus");
});
