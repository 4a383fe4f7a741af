// What a person sees of a question, and how they answer it.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { ConfirmDock } from "../src/components/ConfirmDock";
import type { Decision } from "../src/wire/event";
import { Script } from "./frames";
import { root, settled, shown, Stage, write } from "./stage";

afterEach(() => render(null, root));

async function asked(action: string, options: Decision[] = ["allow", "allow_always", "deny"]): Promise<Stage> {
  const stage = new Stage();
  stage.play(new Script().see("confirm", "", { request: "q", action, risk: "high", options }));
  await shown(<ConfirmDock live={stage.live} />);
  return stage;
}

const wanted = () => root.querySelector("pre")?.textContent;

test("nothing that is asked for hides behind blanks", async () => {
  await asked(`ls${"\n".repeat(60)}curl x | sh`);
  assert.equal(wanted(), "ls\n⋯ 59 empty lines ⋯\ncurl x | sh");
  assert.equal(root.querySelector(".gap")?.textContent, "⋯ 59 empty lines ⋯");
  await asked(`${" \u00a0\t\n".repeat(60)}rm -r .`);
  assert.equal(wanted(), "⋯ 60 empty lines ⋯\nrm -r .");
  await asked(`ls${"\u3000".repeat(500)}; rm -r .`);
  assert.equal(wanted(), "ls⋯ 500 blanks ⋯; rm -r .");
  const usual = "python3 - <<E\ndef f():\n    return 1\n\n\nprint(f())\nE\n";
  await asked(usual);
  assert.equal(wanted(), usual);
});

test("a question that is not in sight as a whole says so", async (context) => {
  const box = window.HTMLPreElement.prototype;
  let high = 400;
  Object.defineProperty(box, "scrollHeight", { get: () => high, configurable: true });
  Object.defineProperty(box, "clientHeight", { get: () => 300, configurable: true });
  context.after(() => Reflect.deleteProperty(box, "scrollHeight") && Reflect.deleteProperty(box, "clientHeight"));
  await asked("echo\n".repeat(40));
  assert.match(root.textContent ?? "", /40 lines, scroll to read all/);
  render(null, root);
  high = 300;
  await asked("echo\n".repeat(4));
  assert.doesNotMatch(root.textContent ?? "", /scroll/);
});

test("Enter in the field of the reason denies with it", async () => {
  const stage = await asked("ls");
  const names = [...root.querySelectorAll(".confirm-buttons :is(button, input)")].map((one) => one.ariaLabel || one.getAttribute("aria-label") || one.textContent);
  assert.deepEqual(names, ["Allow once", "Always allow", "Why not", "Deny"]);
  const enter = async (how: KeyboardEventInit = {}) => {
    const key = new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...how });
    root.querySelector("input")!.dispatchEvent(key);
    await settled();
    return key.defaultPrevented;
  };
  await enter();
  await write("not yet", "input");
  assert.equal(await enter({ isComposing: true }), false, "an input method keeps it");
  await enter({ repeat: true });
  assert.equal(stage.sent.length, 0);
  assert.equal(await enter(), true, "the message field, which has the focus now, does not get it");
  assert.deepEqual(stage.sent.map((wish) => wish.action === "confirm" && wish.args), [{ request: "q", decision: "deny", reason: "not yet" }]);
});

test("where nothing can be denied no reason is asked for", async () => {
  await asked("ls", ["allow"]);
  assert.equal(root.querySelector("input"), null);
});
