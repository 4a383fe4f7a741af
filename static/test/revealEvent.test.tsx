// Event that the address of a session points at.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { EventReveal } from "../src/components/EventReveal";
import { revealedRow } from "../src/state/revealedRow";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

let testSession: TestSession;
let scrolled: string[] = [];
let isReachable = true;
window.HTMLElement.prototype.scrollIntoView = function (this: HTMLElement) {
  scrolled.push(this.textContent ?? "");
};

/** Answers with the event that was asked for, from the frames of the session. */
function serve(script: FrameScript): void {
  globalThis.fetch = (async (address: string) => {
    if (!isReachable) throw new TypeError("network");
    const after = Number(new URL(address, "http://127.0.0.1").searchParams.get("after"));
    const items = script.frames.filter((frame) => "seq" in frame && frame.seq === after + 1);
    return new Response(JSON.stringify({ items }));
  }) as typeof fetch;
}

/** Returns a conversation of many messages. The event numbers of its messages follow each other. */
function conversation(): FrameScript {
  const script = new FrameScript().state("running");
  for (let n = 1; n <= 60; n += 1) script.addObservation("message", `message ${n}`, {}, { item: `i${n}` });
  return script;
}

beforeEach(() => {
  scrolled = [];
  isReachable = true;
  testSession = new TestSession();
});
afterEach(() => render(null, root));

const view = (target: { at: number }) => (
  <>
    <Chat live={testSession.live} />
    <EventReveal live={testSession.live} target={target} />
  </>
);
const marked = () => [...root.querySelectorAll(".revealed")].map((one) => one.textContent);
const seqOf = (script: FrameScript, content: string) => (script.frames.find((frame) => "content" in frame && frame.content === content) as { seq: number }).seq;

test("event is scrolled to, marked and focused once", async () => {
  const script = conversation();
  serve(script);
  testSession.play(script);
  await renderText(view({ at: seqOf(script, "message 3") }));
  assert.deepEqual([marked(), scrolled], [["message 3"], ["message 3"]]);
  assert.equal(document.activeElement, root.querySelector(".revealed"));
  assert.equal(root.querySelector(".row")?.textContent, "message 1", "what precedes it is drawn");
  // New messages do not scroll again, and the mark stays.
  testSession.play(script.addObservation("message", "newest", {}, { item: "new" }));
  await settled();
  assert.deepEqual([marked(), scrolled.length], [["message 3"], 1]);
  // The same address again scrolls again.
  await renderText(view({ at: seqOf(script, "message 3") }));
  assert.equal(scrolled.length, 2);
  await renderText(view({ at: seqOf(script, "message 9") }));
  assert.deepEqual(marked(), ["message 9"]);
  render(null, root);
  assert.equal(revealedRow.value, null);
});

test("event is awaited until its slice is loaded", async () => {
  const script = conversation();
  serve(script);
  const at = seqOf(script, "message 40");
  testSession.receive(...script.frames.slice(0, 10));
  await renderText(view({ at }));
  assert.match(root.textContent!, /Looking for the message…/);
  assert.deepEqual(marked(), []);
  testSession.receive(...script.frames.slice(10));
  await settled();
  assert.deepEqual(marked(), ["message 40"]);
  assert.doesNotMatch(root.textContent!, /Looking for the message/);
});

test("failure says why and is tried again", async () => {
  const script = conversation();
  serve(script);
  testSession.play(script);
  isReachable = false;
  const target = { at: seqOf(script, "message 5") };
  await renderText(view(target));
  assert.match(root.querySelector("[role=alert]")!.textContent!, /Couldn't show the event: no reply/);
  isReachable = true;
  press("Try again");
  await settled();
  assert.deepEqual(marked(), ["message 5"]);
  await renderText(view({ at: 99_999 }));
  assert.match(root.querySelector("[role=alert]")!.textContent!, /this session has no event 99999/);
});
