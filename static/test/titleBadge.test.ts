import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { show } from "../src/state/current";
import { learn, newest } from "../src/state/list";
import "../src/state/title";
import type { Session } from "../src/wire/frame";
import { Script } from "./frames";
import { Stage } from "./stage";

test("the title tells that the session on the page waits, as soon as its socket does", () => {
  const stage = new Stage();
  const hide = show(stage.live);
  const listed = (id: string, state: Session["state"]) => ({ id, state, title: id }) as Session;
  newest.value = [listed("s1", "running"), listed("s2", "awaiting_confirmation")];
  const script = new Script().state("running");
  stage.play(script);
  assert.match(document.title, /^\(1\) /);
  stage.play(script.state("awaiting_confirmation"));
  assert.match(document.title, /^\(2\) /);
  newest.value = [listed("s1", "awaiting_confirmation")];
  assert.match(document.title, /^\(1\) /, "the list says no more than its socket");
  stage.play(script.state("running"));
  assert.match(document.title, /^● /, "and says it later");
  hide();
  newest.value = [];
});

test("a session that is left is known as it was then, not as the list had it", () => {
  const stage = new Stage();
  const hide = show(stage.live);
  const listed = { id: "s1", state: "awaiting_confirmation", title: "s1", last_seq: 1 } as Session;
  newest.value = [listed];
  learn([listed]);
  stage.play(new Script().state("awaiting_confirmation").state("running"));
  stage.say({ status: "synced", seq: 2 });
  hide();
  assert.equal(document.title, "Greenroom");
  newest.value = [];
});

test("the title of a hidden page tells that the agent has finished, until the page is seen", (context) => {
  let hidden = true;
  context.mock.getter(document, "hidden", () => hidden);
  const seen = () => {
    hidden = false;
    document.dispatchEvent(new window.Event("visibilitychange"));
  };
  const stage = new Stage();
  const hide = show(stage.live);
  const script = new Script().state("running");
  stage.play(script);
  stage.say({ status: "synced", seq: 1 });
  assert.match(document.title, /^● /);
  stage.play(script.state("idle"));
  assert.match(document.title, /^✓ /);
  stage.play(script.state("running"));
  assert.match(document.title, /^● /, "what waited in the queue is begun");
  stage.play(script.state("idle"));
  assert.match(document.title, /^✓ /);
  seen();
  assert.doesNotMatch(document.title, /^✓ /);
  stage.play(script.state("running").state("idle"));
  assert.doesNotMatch(document.title, /^✓ /, "somebody saw it");
  hide();
});
