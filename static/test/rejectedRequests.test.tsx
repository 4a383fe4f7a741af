// Texts too long to send, attached as a file instead.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { RejectedRequests } from "../src/components/RejectedRequests";
import { showSession } from "../src/state/currentSession";
import { LiveSession } from "../src/state/liveSession";
import { uploadsOf } from "../src/state/uploads";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

const NAME = "Attach as a file";
const button = () => [...root.querySelectorAll("button")].find(({ textContent }) => textContent === NAME);
const WORDS = "é".repeat(600_000);
const text = () => (root.textContent ?? "").replace(WORDS, "its words");
const unsent = () => Object.keys(localStorage).filter((key) => key.startsWith("greenroom.unsent."));
const ended = () => new FrameScript().state("ended", "by its owner");

/** Ends the current upload. */
let answer = (_: number, __ = "") => {};

class FakeUploadRequest {
  upload = {};
  status = 0;
  responseText = "";
  onload = () => {};
  open() {}
  setRequestHeader() {}
  send() {
    answer = (status, text = "") => {
      Object.assign(this, { status, responseText: text });
      this.onload();
    };
  }
}
Object.assign(globalThis, { XMLHttpRequest: FakeUploadRequest, WebSocket: class { close() {} } });
globalThis.fetch = (async () => new Response('{"items":[]}')) as typeof fetch;

beforeEach(() => {
  localStorage.clear();
  uploadsOf("s1").clear();
});
afterEach(() => render(null, root));

/** Opens a page with such an upload in progress. */
async function startAttaching(): Promise<TestSession> {
  const testSession = new TestSession();
  testSession.live.message(WORDS, "queue");
  await renderText(<RejectedRequests live={testSession.live} />);
  press(NAME);
  await settled();
  return testSession;
}

test("attached text appears in one place after a return during the upload", async () => {
  const before = await startAttaching();
  render(null, root);
  before.live.close();
  const live = new LiveSession("s1");
  const hide = showSession(live);
  assert.equal(live.state.value.pending.length, 1);
  answer(201);
  await settled();
  assert.deepEqual([live.state.value.pending.length, unsent(), uploadsOf("s1").paths], [0, [], ["uploads/message.txt"]]);
  hide();
  live.close();
});

test("attached text appears in one place after a later return", async () => {
  (await startAttaching()).live.close();
  render(null, root);
  const other = new TestSession();
  const hide = showSession(Object.assign(other.live, { id: "s2" }));
  answer(201);
  await settled();
  assert.deepEqual([unsent(), uploadsOf("s1").paths], [[], ["uploads/message.txt"]]);
  hide();
});

test("ended session offers no attachment", async () => {
  const testSession = new TestSession();
  testSession.live.message(WORDS, "queue");
  await renderText(<RejectedRequests live={testSession.live} />);
  assert.ok(button());
  testSession.play(ended());
  await settled();
  assert.equal(button(), undefined);
  assert.match(text(), /its words/);
});

test("session ended during the upload keeps the text and shows the reason", async () => {
  for (const [status, body, said] of [[409, '{"error":{"code":"ended","message":"it has ended"}}', /Couldn't attach it: it has ended\./], [201, "", /its words/]] as const) {
    const testSession = await startAttaching();
    testSession.play(ended());
    answer(status, body);
    await settled();
    assert.match(text(), said);
    assert.deepEqual([button(), testSession.live.state.value.pending.length, unsent().length], [undefined, 1, 1]);
    render(null, root);
    testSession.live.dropRequest(testSession.live.state.value.pending[0]!.id);
  }
});
