import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { showSession } from "../src/state/currentSession";
import { mergeSessions, newest } from "../src/state/sessionList";
import "../src/state/titleBadge";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { TestSession } from "./testSession";

test("title shows a waiting session as soon as its socket reports it", () => {
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  const listed = (id: string, state: Session["state"]) => ({ id, state, title: id }) as Session;
  newest.value = [listed("s1", "running"), listed("s2", "awaiting_confirmation")];
  const script = new FrameScript().state("running");
  testSession.play(script);
  assert.match(document.title, /^\(1\) /);
  testSession.play(script.state("awaiting_confirmation"));
  assert.match(document.title, /^\(2\) /);
  newest.value = [listed("s1", "awaiting_confirmation")];
  assert.match(document.title, /^\(1\) /, "the list has no newer state than the socket");
  testSession.play(script.state("running"));
  assert.match(document.title, /^● /, "the list follows later");
  hide();
  newest.value = [];
});

test("left session keeps its last state, not the list's", () => {
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  const listed = { id: "s1", state: "awaiting_confirmation", title: "s1", last_seq: 1 } as Session;
  newest.value = [listed];
  mergeSessions([listed]);
  testSession.play(new FrameScript().state("awaiting_confirmation").state("running"));
  testSession.receive({ status: "synced", seq: 2 });
  hide();
  assert.equal(document.title, "Greenroom");
  newest.value = [];
});

test("title of a hidden page shows a finished turn until visible", (context) => {
  let hidden = true;
  context.mock.getter(document, "hidden", () => hidden);
  const seen = () => {
    hidden = false;
    document.dispatchEvent(new window.Event("visibilitychange"));
  };
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  const script = new FrameScript().state("running");
  testSession.play(script);
  testSession.receive({ status: "synced", seq: 1 });
  assert.match(document.title, /^● /);
  testSession.play(script.state("idle"));
  assert.match(document.title, /^✓ /);
  testSession.play(script.state("running"));
  assert.match(document.title, /^● /, "the queued message starts a turn");
  testSession.play(script.state("idle"));
  assert.match(document.title, /^✓ /);
  seen();
  assert.doesNotMatch(document.title, /^✓ /);
  testSession.play(script.state("running").state("idle"));
  assert.doesNotMatch(document.title, /^✓ /, "the page was visible");
  hide();
});

test("title and icon show a failed turn until the next one, and nothing while the server is away", () => {
  document.head.insertAdjacentHTML("afterbegin", '<link rel="icon" href="/favicon.svg">');
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]")!;
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  const script = new FrameScript().state("running").state("idle", "failed");
  testSession.play(script);
  testSession.receive({ status: "synced", seq: 2 });
  assert.match(document.title, /^✗ /);
  assert.match(icon.href, /favicon-failed\.svg$/);
  testSession.listener.lost(0);
  assert.doesNotMatch(document.title, /^✗ /);
  testSession.receive({ status: "hello", session: null, last_seq: 2, state: "idle" }, { status: "synced", seq: 2 });
  testSession.play(script.state("running"));
  assert.match(document.title, /^● /);
  hide();
  icon.remove();
});
