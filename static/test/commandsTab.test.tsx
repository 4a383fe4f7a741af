// Finished commands while another one prints.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { options, render } from "preact";
import { CommandsTab } from "../src/components/CommandsTab";
import { FrameScript } from "./frameScript";
import { root, settled, renderText, TestSession, write } from "./testSession";

afterEach(() => render(null, root));

test("finished commands are not redrawn while another one prints", async () => {
  const testSession = new TestSession();
  const script = new FrameScript();
  for (let n = 0; n < 20; n += 1) {
    script.addAction("agent", "run", { command: "ls" }, { item: `r${n}` });
    script.addObservation("run", "\x1b[31mred\x1b[0m plain", { command: "ls", exit_code: 0, duration_ms: 1 }, { item: `r${n}` });
  }
  testSession.play(script.addAction("agent", "run", { command: "make" }, { item: "last" }));
  await renderText(<CommandsTab live={testSession.live} />);
  let drawn = 0;
  const { diffed } = options;
  options.diffed = (vnode) => {
    if (vnode.type === "pre") drawn += 1;
    diffed?.(vnode);
  };
  testSession.receive({ delta: "output", item: "last", offset: 0, content: "built" });
  await settled();
  if (diffed) options.diffed = diffed;
  assert.match(root.textContent ?? "", /make.*built/);
  assert.equal(root.querySelectorAll("pre").length, 21);
  assert.equal(drawn, 1);
});

test("command draft survives a reload until it is run", async () => {
  localStorage.clear();
  const opened = async () => {
    render(null, root);
    const testSession = new TestSession();
    await renderText(<CommandsTab live={testSession.live} />);
    return { testSession, field: root.querySelector<HTMLInputElement>(".command-field")! };
  };
  await opened();
  await write("make al", ".command-field");
  assert.equal(localStorage.getItem("greenroom.draft.s1.command"), "make al");
  const { testSession, field } = await opened();
  assert.equal(field.value, "make al");
  await write("make all", ".command-field");
  root.querySelector("form")!.dispatchEvent(new window.Event("submit", { cancelable: true }));
  await settled();
  assert.deepEqual(testSession.sent.map((request) => request.action === "run" && request.args.command), ["make all"]);
  assert.equal((await opened()).field.value, "");
});
