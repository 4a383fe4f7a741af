// Words that were too long to be sent, and become a file in their place.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Outbox } from "../src/components/Outbox";
import { show } from "../src/state/current";
import { LiveSession } from "../src/state/live";
import { uploadsOf } from "../src/state/uploads";
import { Script } from "./frames";
import { press, root, settled, shown, Stage } from "./stage";

const NAME = "Attach as a file";
const button = () => [...root.querySelectorAll("button")].find(({ textContent }) => textContent === NAME);
const WORDS = "é".repeat(600_000);
const text = () => (root.textContent ?? "").replace(WORDS, "its words");
const unsent = () => Object.keys(localStorage).filter((key) => key.startsWith("greenroom.unsent."));
const ended = () => new Script().state("ended", "by its owner");

/** Ends the upload that is under way. */
let answer = (_: number, __ = "") => {};

class Request {
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
Object.assign(globalThis, { XMLHttpRequest: Request, WebSocket: class { close() {} } });
globalThis.fetch = (async () => new Response('{"items":[]}')) as typeof fetch;

beforeEach(() => {
  localStorage.clear();
  uploadsOf("s1").clear();
});
afterEach(() => render(null, root));

/** A page on which they are on their way to be a file. */
async function attaches(): Promise<Stage> {
  const stage = new Stage();
  stage.live.message(WORDS, "queue");
  await shown(<Outbox live={stage.live} />);
  press(NAME);
  await settled();
  return stage;
}

test("whoever comes back to the session meanwhile does not find them in two places", async () => {
  const before = await attaches();
  render(null, root);
  before.live.close();
  const live = new LiveSession("s1");
  const hide = show(live);
  assert.equal(live.state.value.sending.length, 1);
  answer(201);
  await settled();
  assert.deepEqual([live.state.value.sending.length, unsent(), uploadsOf("s1").paths], [0, [], ["uploads/message.txt"]]);
  hide();
  live.close();
});

test("nor does who comes back later", async () => {
  (await attaches()).live.close();
  render(null, root);
  const other = new Stage();
  const hide = show(Object.assign(other.live, { id: "s2" }));
  answer(201);
  await settled();
  assert.deepEqual([unsent(), uploadsOf("s1").paths], [[], ["uploads/message.txt"]]);
  hide();
});

test("nothing can be attached in a session that has ended", async () => {
  const stage = new Stage();
  stage.live.message(WORDS, "queue");
  await shown(<Outbox live={stage.live} />);
  assert.ok(button());
  stage.play(ended());
  await settled();
  assert.equal(button(), undefined);
  assert.match(text(), /its words/);
});

test("where it ends meanwhile they stay, and why they are no file is said in their place", async () => {
  for (const [status, body, said] of [[409, '{"error":{"code":"ended","message":"it has ended"}}', /It could not be attached: it has ended\./], [201, "", /its words/]] as const) {
    const stage = await attaches();
    stage.play(ended());
    answer(status, body);
    await settled();
    assert.match(text(), said);
    assert.deepEqual([button(), stage.live.state.value.sending.length, unsent().length], [undefined, 1, 1]);
    render(null, root);
    stage.live.drop(stage.live.state.value.sending[0]!.id);
  }
});
