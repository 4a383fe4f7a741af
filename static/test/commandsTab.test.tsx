// The commands that ran, while another one prints.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { options, render } from "preact";
import { CommandsTab } from "../src/components/CommandsTab";
import { Script } from "./frames";
import { root, settled, shown, Stage, write } from "./stage";

afterEach(() => render(null, root));

test("a command that has ended is not drawn again while another one prints", async () => {
  const stage = new Stage();
  const script = new Script();
  for (let n = 0; n < 20; n += 1) {
    script.act("agent", "run", { command: "ls" }, { item: `r${n}` });
    script.see("run", "\x1b[31mred\x1b[0m plain", { command: "ls", exit_code: 0, duration_ms: 1 }, { item: `r${n}` });
  }
  stage.play(script.act("agent", "run", { command: "make" }, { item: "last" }));
  await shown(<CommandsTab live={stage.live} />);
  let drawn = 0;
  const { diffed } = options;
  options.diffed = (vnode) => {
    if (vnode.type === "pre") drawn += 1;
    diffed?.(vnode);
  };
  stage.say({ delta: "output", item: "last", offset: 0, content: "built" });
  await settled();
  if (diffed) options.diffed = diffed;
  assert.match(root.textContent ?? "", /make.*built/);
  assert.equal(root.querySelectorAll("pre").length, 21);
  assert.equal(drawn, 1);
});

test("a command that was begun outlives the page, until it is run", async () => {
  localStorage.clear();
  const opened = async () => {
    render(null, root);
    const stage = new Stage();
    await shown(<CommandsTab live={stage.live} />);
    return { stage, field: root.querySelector<HTMLInputElement>(".command-field")! };
  };
  await opened();
  await write("make al", ".command-field");
  assert.equal(localStorage.getItem("greenroom.draft.s1.command"), "make al");
  const { stage, field } = await opened();
  assert.equal(field.value, "make al");
  await write("make all", ".command-field");
  root.querySelector("form")!.dispatchEvent(new window.Event("submit", { cancelable: true }));
  await settled();
  assert.deepEqual(stage.sent.map((wish) => wish.action === "run" && wish.args.command), ["make all"]);
  assert.equal((await opened()).field.value, "");
});
