// Display and answers of an approval request.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { ApprovalDock } from "../src/approvals/ApprovalDock";
import type { ApprovalDecision } from "../src/wire/event";
import { FrameScript } from "./frameScript";
import { root, settled, renderText, TestSession, write } from "./testSession";

afterEach(() => render(null, root));

async function showRequest(action: string, options: ApprovalDecision[] = ["allow", "allow_always", "deny"]): Promise<TestSession> {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("confirm", "", { request: "q", action, risk: { level: "high" }, options }));
  await renderText(<ApprovalDock live={testSession.live} />);
  return testSession;
}

const requestedAction = () => root.querySelector("pre")?.textContent;

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

test("Enter in the reason field denies with that reason", async () => {
  const testSession = await showRequest("ls");
  const names = [...root.querySelectorAll(".confirm-buttons :is(button, input)")].map((one) => one.ariaLabel || one.getAttribute("aria-label") || one.textContent);
  assert.deepEqual(names, ["Allow once", "Always allow", "Reason", "Deny"]);
  const enter = async (how: KeyboardEventInit = {}) => {
    const key = new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...how });
    root.querySelector("input")!.dispatchEvent(key);
    await settled();
    return key.defaultPrevented;
  };
  await enter();
  await write("not yet", "input");
  assert.equal(await enter({ isComposing: true }), false, "the input method handles the key");
  await enter({ repeat: true });
  assert.equal(testSession.sent.length, 0);
  assert.equal(await enter(), true, "the focused message field does not receive the key");
  assert.deepEqual(testSession.sent.map((request) => request.action === "confirm" && request.args), [{ request: "q", decision: "deny", reason: "not yet" }]);
});

test("no reason field without the deny option", async () => {
  await showRequest("ls", ["allow"]);
  assert.equal(root.querySelector("input"), null);
});
