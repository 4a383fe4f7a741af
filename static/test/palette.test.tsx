// Command palette while its entries change.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Palette } from "../src/components/Palette";
import { showSession } from "../src/state/currentSession";
import { overlay } from "../src/state/keys";
import { mergeSessions, newest, search } from "../src/state/sessionList";
import { sidebarHidden } from "../src/state/sidebar";
import { LiveSession } from "../src/state/liveSession";
import type { ServerFrame, Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { root, settled, renderText, TestSession, write } from "./testSession";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });
window.HTMLElement.prototype.scrollIntoView = () => {};

const texts = () => [...root.querySelectorAll(".palette-text")].map((one) => one.textContent);
const chosen = () => root.querySelector("[aria-selected=true] .palette-text")?.textContent;

async function key(name: string): Promise<void> {
  root.querySelector("input")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: name, bubbles: true }));
  await settled();
}

/** Simulates a refresh of the list. */
async function refreshList(...titles: string[]): Promise<void> {
  newest.value = titles.map((title) => ({ id: title, title, state: "idle", last_seq: 1 }) as Session);
  mergeSessions(newest.value);
  await settled();
}

afterEach(() => render(null, root));

test("chosen entry keeps its place while entries change", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("running");
  testSession.play(script);
  const hide = showSession(testSession.live);
  await refreshList("one");
  await renderText(<Palette />);
  await write("p", "input");
  const before = texts();
  while (chosen() !== "Pause") await key("ArrowDown");
  testSession.play(script.state("idle"));
  await refreshList("pear", "one");
  assert.equal(chosen(), "Pause");
  assert.deepEqual(texts().slice(0, before.length), before);
  assert.deepEqual(texts().slice(before.length), ["pear", "Stop sandbox"]);
  assert.match(root.querySelector("[aria-disabled=true][aria-selected=true]")?.textContent ?? "", /Not available now/);
  await key("Enter");
  assert.deepEqual(testSession.sent, [], "no other entry runs instead");
  await write("pear", "input");
  assert.deepEqual([chosen(), texts()], ["pear", ["pear", "Search conversations for “pear”"]], "typing refreshes the entries");
  hide();
});

test("entry that became impossible is marked and not run", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("idle").addObservation("queue", "", { items: [{ item: "m", content: "wait" }] });
  testSession.play(script);
  const hide = showSession(testSession.live);
  await renderText(<Palette />);
  await write("resume", "input");
  testSession.play(script.addObservation("queue", "", { items: [] }));
  await key("Enter");
  assert.deepEqual(testSession.sent, []);
  assert.match(root.querySelector("[aria-disabled=true]")?.textContent ?? "", /Resume.*Not available now/);
  hide();
});

test("action for one session does not run on the next", async () => {
  const testSession = new TestSession();
  const next = new LiveSession("s2", (listener) => {
    setImmediate(() => listener.received(new FrameScript().state("idle").frames as ServerFrame[]));
    return { send: () => assert.fail("it was done to the next"), retryNow() {}, close() {} };
  });
  testSession.play(new FrameScript().state("idle"));
  showSession(testSession.live);
  await renderText(<Palette />);
  await write("stop the sandbox", "input");
  const hide = showSession(next);
  await settled();
  await key("Enter");
  assert.deepEqual(testSession.sent, []);
  hide();
});

test("palette begins with the recent sessions, then actions", async () => {
  const titles = Array.from({ length: 9 }, (_, n) => `session ${n}`);
  await refreshList(...titles);
  await renderText(<Palette />);
  assert.deepEqual(texts().slice(0, 7), [...titles.slice(0, 6), "New session"]);
  await write("session 8", "input");
  assert.deepEqual([chosen(), texts()], ["session 8", ["session 8", "Search conversations for “session 8”"]], "typing finds older ones");
  await write("colours", "input");
  assert.deepEqual(texts().slice(-2), ["Colours: dark", "Search conversations for “colours”"]);
});

test("palette passes a text to the search through conversations", async () => {
  const asked: string[] = [];
  globalThis.fetch = (async (address: string) => {
    asked.push(address);
    return new Response('{"items":[],"total":0}');
  }) as typeof fetch;
  sidebarHidden.value = true;
  await renderText(<Palette />);
  await write(" bake bread ", "input");
  assert.equal(chosen(), "Search conversations for “bake bread”");
  await key("Enter");
  assert.deepEqual([search.value, sidebarHidden.value, overlay.value], ["bake bread", false, null]);
  assert.match(asked[0] ?? "", /sessions\?q=bake\+bread/);
  search.value = "";
});
