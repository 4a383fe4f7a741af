// Display and answers of approval requests.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { ApprovalDock } from "../src/approvals/ApprovalDock";
import { RejectedRequests } from "../src/components/RejectedRequests";
import { syncClock } from "../src/clock";
import type { ApprovalDecision, ObservationExtras } from "../src/wire/event";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, waitUntil, write } from "./testSession";

afterEach(() => {
  render(null, root);
  localStorage.clear();
});

type AskedExtras = Partial<ObservationExtras["confirm"]>;

const CHOICES: ObservationExtras["confirm"]["choices"] = [
  { id: "once", name: "Allow once", kind: "allow_once" },
  { id: "session", name: "Allow `git push *` in this session", kind: "allow_always" },
  { id: "deny", name: "Deny", kind: "reject_once" },
];
const run = (command: string) => ({ action: "run", args: { command } });

function asking(script: FrameScript, request: string, more: AskedExtras = {}): FrameScript {
  return script.addObservation("confirm", "", { request, action: "a call", options: ["allow", "deny"], choices: CHOICES, ...more }, { item: `item-${request}` });
}

/** Shows requests, and waits until they take presses. */
async function show(script: FrameScript): Promise<TestSession> {
  const testSession = new TestSession();
  testSession.play(script);
  testSession.receive({ status: "synced", seq: script.frames.length });
  await renderText(<ApprovalDock live={testSession.live} />);
  await takesPresses();
  return testSession;
}

const takesPresses = () => waitUntil(() => !root.querySelector("[inert]"));
const showRequest = (action: string, options: ApprovalDecision[] = ["allow", "allow_always", "deny"]) =>
  show(new FrameScript().addObservation("confirm", "", { request: "q", action, risk: { level: "high" }, options }));
const answersOf = ({ sent }: TestSession) => sent.map((request) => request.action === "confirm" && request.args);
const requestedAction = () => root.querySelector("pre")?.textContent;
const buttons = () => [...root.querySelectorAll(".confirm-buttons button")].map((one) => one.textContent);

function key(target: Element, name: string, how: KeyboardEventInit = {}): KeyboardEvent {
  const event = new window.KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...how });
  target.dispatchEvent(event);
  return event;
}

test("runs of blanks are shown as gaps in the requested action", async () => {
  await showRequest(`ls${"\n".repeat(60)}curl x | sh`);
  assert.equal(requestedAction(), "ls\n⋯ 59 empty lines ⋯\ncurl x | sh");
  assert.equal(root.querySelector(".gap")?.textContent, "⋯ 59 empty lines ⋯");
  await showRequest(`${" \u00a0\t\n".repeat(60)}rm -r .`);
  assert.equal(requestedAction(), "⋯ 60 empty lines ⋯\nrm -r .");
  await showRequest(`ls${"\u3000".repeat(500)}; rm -r .`);
  assert.equal(requestedAction(), "ls⋯ 500 blanks ⋯; rm -r .");
  const usual = "python3 - <<E\ndef f():\n    return 1\n\n\nprint(f())\nE\n";
  await showRequest(usual);
  assert.equal(requestedAction(), usual);
});

test("cut-off action shows its number of lines", async (context) => {
  const box = window.HTMLPreElement.prototype;
  let high = 400;
  Object.defineProperty(box, "scrollHeight", { get: () => high, configurable: true });
  Object.defineProperty(box, "clientHeight", { get: () => 300, configurable: true });
  context.after(() => Reflect.deleteProperty(box, "scrollHeight") && Reflect.deleteProperty(box, "clientHeight"));
  await showRequest("echo\n".repeat(40));
  assert.match(root.textContent ?? "", /40 lines, scroll to read all/);
  render(null, root);
  high = 300;
  await showRequest("echo\n".repeat(4));
  assert.doesNotMatch(root.textContent ?? "", /scroll/);
});

test("whole call, its unseen characters, risk and author of the question are shown", async () => {
  await show(
    asking(new FrameScript(), "q", {
      call: run("ls\u200b\u202e -l\r# \u0430 or р\u0430th"),
      asked_by: "rule `git push*`",
      risk: { level: "high", reasons: ["hides `text`"], analyzer: "rules" },
    }),
  );
  assert.equal(requestedAction(), "ls\\u{200b}\\u{202e} -l\\u{d}# \u0430 or р\u0430th");
  assert.deepEqual([...root.querySelectorAll("mark")].map(({ className, title }) => `${className}: ${title}`), [
    "hidden: zero-width space",
    "hidden: unseen character",
    "hidden: carriage return, which can overwrite the line",
    "look-alike: U+0430, looks like a",
    "look-alike: U+0440, looks like p",
    "look-alike: U+0430, looks like a",
  ]);
  const text = root.textContent ?? "";
  assert.match(text, /Contains 3 unseen characters and 3 look-alikes/);
  assert.match(text, /High risk/);
  assert.match(text, /hides text/);
  assert.match(text, /Asked by rule git push\*, risk by analyzer rules/);
});

test("edit shows its diff with unseen characters", async () => {
  const diff = "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-one\n+t\u200bwo\n";
  await show(asking(new FrameScript(), "q", { call: { action: "edit", args: { path: "x.md", lines: ["two"] } }, diff }));
  assert.match(root.querySelector("code.diff")!.textContent!, /-one\n\+t\\u\{200b\}wo/);
  assert.match(root.textContent!, /Contains 1 unseen character/);
  assert.equal(root.querySelector(".confirm-path")!.textContent, "x.md");
});

test("command with a diff shows the command", async () => {
  await show(asking(new FrameScript(), "q", { call: run("rm -r ."), diff: "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-one\n+two\n" }));
  assert.equal(requestedAction(), "rm -r .");
  assert.equal(root.querySelector("code.diff"), null);
});

test("Ctrl+Enter in the reason field denies", async () => {
  const testSession = await showRequest("ls");
  await write("not yet", "input");
  key(root.querySelector("input")!, "Enter", { ctrlKey: true });
  await settled();
  assert.deepEqual(answersOf(testSession), [{ request: "q", decision: "deny", reason: "not yet" }]);
});

test("buttons come from the choices, and from the options of an earlier server", async () => {
  const odd = [{ id: "x", name: "Sometimes", kind: "allow_sometimes" }, { id: 5, name: "No id", kind: "allow_once" }] as never[];
  const testSession = await show(asking(new FrameScript(), "q", { choices: [...CHOICES!, ...odd] }));
  assert.deepEqual(buttons(), ["Allow once", "Allow git push * in this session", "Deny"]);
  [...root.querySelectorAll<HTMLElement>(".confirm-buttons button")][1]!.click();
  assert.deepEqual(answersOf(testSession), [{ request: "q", decision: "allow_always", choice: "session" }]);
  await showRequest("ls");
  assert.deepEqual(buttons(), ["Allow once", "Always allow", "Deny"]);
});

test("Enter in the reason field denies with that reason", async () => {
  const testSession = await showRequest("ls");
  const names = [...root.querySelectorAll(".confirm-buttons :is(button, input)")].map((one) => one.ariaLabel || one.getAttribute("aria-label") || one.textContent);
  assert.deepEqual(names, ["Allow once", "Always allow", "Reason", "Deny"]);
  const enter = async (how: KeyboardEventInit = {}) => {
    const { defaultPrevented } = key(root.querySelector("input")!, "Enter", how);
    await settled();
    return defaultPrevented;
  };
  await enter();
  await write("not yet", "input");
  assert.equal(await enter({ isComposing: true }), false, "the input method handles the key");
  await enter({ repeat: true });
  assert.equal(testSession.sent.length, 0);
  assert.equal(await enter(), true, "the focused message field does not receive the key");
  assert.deepEqual(answersOf(testSession), [{ request: "q", decision: "deny", reason: "not yet" }]);
});

test("no reason field without the deny option", async () => {
  await showRequest("ls", ["allow"]);
  assert.equal(root.querySelector("input"), null);
});

test("changed call is sent with the answer, an unchanged one is not", async () => {
  const asked = () => show(asking(new FrameScript(), "q", { call: { action: "write", args: { path: "a.txt", content: "one" } }, editable: true, diff: "@@ -0,0 +1 @@\n+one\n" }));
  const testSession = await asked();
  press("Edit");
  await settled();
  assert.equal(document.activeElement, root.querySelector("textarea"));
  assert.deepEqual(buttons(), ["Allow the edited call", "Discard the edit", "Deny"]);
  await write("tw\u200bo");
  assert.match(root.textContent ?? "", /Contains 1 unseen character/);
  await write("two");
  key(root.querySelector("textarea")!, "Enter", { ctrlKey: true });
  assert.deepEqual(answersOf(testSession), [{ request: "q", decision: "allow", choice: "once", input: { path: "a.txt", content: "two" } }]);
  render(null, root);
  const unchanged = await asked();
  press("Edit");
  await settled();
  press("Allow the edited call");
  assert.deepEqual(answersOf(unchanged), [{ request: "q", decision: "allow", choice: "once" }]);
});

test("calls of all kinds can be changed if the agent takes changes", async () => {
  const changed = async (call: object, to: string) => {
    const testSession = await show(asking(new FrameScript(), "q", { call, editable: true }));
    press("Edit");
    await settled();
    await write(to);
    press("Allow the edited call");
    const [answer] = answersOf(testSession);
    render(null, root);
    return answer && answer.input;
  };
  assert.deepEqual(await changed(run("ls"), "ls -l"), { command: "ls -l" });
  assert.deepEqual(await changed({ action: "browse", args: { url: "http://a" } }, "http://b"), { url: "http://b" });
  const edit = { action: "edit", args: { path: "a", change: "REPLACE", line: 1, lines: ["x"] } };
  assert.deepEqual(await changed(edit, "y\nz"), { ...edit.args, lines: ["y", "z"] });
  await show(asking(new FrameScript(), "q", { call: run("ls") }));
  assert.deepEqual(buttons(), ["Allow once", "Allow git push * in this session", "Deny"]);
});

test("focus comes to a request calmly, and keys decide only with Ctrl", async () => {
  const testSession = await show(asking(new FrameScript(), "q", { call: run("ls") }));
  const card = root.querySelector(".confirm")!;
  assert.equal(document.activeElement, card);
  for (const name of ["Enter", " ", "a", "Backspace"]) key(card, name);
  key(card, "Enter", { ctrlKey: true, repeat: true });
  assert.equal(key(card, "Escape").defaultPrevented, true, "the page does not interrupt");
  assert.equal(testSession.sent.length, 0);
  key(card, "Enter", { ctrlKey: true });
  assert.deepEqual(answersOf(testSession), [{ request: "q", decision: "allow", choice: "once" }]);
  render(null, root);
  const denied = await show(asking(new FrameScript(), "q", { call: run("ls") }));
  key(root.querySelector(".confirm")!, "Backspace", { metaKey: true });
  assert.deepEqual(answersOf(denied), [{ request: "q", decision: "deny", choice: "deny" }]);
});

test("focus stays with a person who is writing", async () => {
  const field = document.body.appendChild(document.createElement("textarea"));
  field.focus();
  await show(asking(new FrameScript(), "q"));
  assert.equal(document.activeElement, field);
  field.remove();
});

test("new request takes no press that was meant for what was there before", async () => {
  const testSession = new TestSession();
  testSession.play(asking(new FrameScript(), "q"));
  await renderText(<ApprovalDock live={testSession.live} />);
  assert.ok(root.querySelector(".confirm-buttons[inert]"));
  press("Allow once");
  key(root.querySelector(".confirm")!, "Enter", { ctrlKey: true });
  assert.equal(testSession.sent.length, 0);
  await takesPresses();
  const twice = new window.MouseEvent("click", { bubbles: true, detail: 2 });
  root.querySelector(".confirm-buttons button")!.dispatchEvent(twice);
  assert.equal(testSession.sent.length, 0, "a double click answers one request");
  press("Allow once");
  assert.equal(testSession.sent.length, 1);
});

test("several requests queue, and an answer shows the next", async () => {
  const script = asking(asking(asking(new FrameScript(), "a", { call: run("one") }), "b", { call: run("two") }), "c", { call: run("three") });
  const testSession = await show(script);
  const pager = () => root.querySelector(".confirm-pager")?.textContent;
  assert.deepEqual([requestedAction(), pager()], ["one", "1 of 3"]);
  press("Next request");
  await settled();
  assert.deepEqual([requestedAction(), pager()], ["two", "2 of 3"]);
  await takesPresses();
  press("Deny");
  await settled();
  assert.deepEqual([requestedAction(), pager()], ["one", "1 of 3"], "the answer is on its way");
  testSession.play(script.addObservation("confirmed", "", { request: "b", decision: "deny", by: "person", who: "Firefox" }));
  await settled();
  assert.equal(pager(), "1 of 2");
  await takesPresses();
  press("Allow once");
  testSession.play(script.addObservation("confirmed", "", { request: "a", decision: "allow", by: "person", who: "Firefox" }));
  await settled();
  assert.deepEqual([requestedAction(), pager()], ["three", undefined]);
  assert.deepEqual(answersOf(testSession).map((args) => args && args.request), ["b", "a"]);
});

test("answer to a decided request shows who was first", async () => {
  const testSession = new TestSession();
  const script = asking(new FrameScript(), "q");
  testSession.play(script);
  testSession.live.answerApproval({ request: "q", decision: "allow" });
  testSession.play(script.addObservation("confirmed", "", { request: "q", decision: "deny", by: "person", who: "Safari on iPhone", reason: "not today" }));
  testSession.receive({ error: { code: "no_request", message: "no request `q` is open" }, id: testSession.sent[0]!.id });
  assert.match(await renderText(<RejectedRequests live={testSession.live} />), /^Already decided: Denied by Safari on iPhone: not today/);
});

test("waiting time counts on the server's clock", async () => {
  syncClock(new Date(Date.UTC(2026, 0, 1, 0, 1, 1)).toISOString());
  await show(asking(new FrameScript(), "q"));
  assert.match(root.querySelector(".confirm-time")?.textContent ?? "", /^1 min \d s$/);
});
