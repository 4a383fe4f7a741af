// The menu of models, where the server does not say at once what it offers.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { ModelMenu } from "../src/components/ModelMenu";
import { Popover } from "../src/components/Popover";
import "../src/refocus";
import { press, root, settled, shown, Stage } from "./stage";

test("it says why there are none, and goes on where it is tried again", async () => {
  let status = 500;
  const answers = { 500: { error: { message: "the disk is full" } }, 200: { models: [{ name: "demo", demo: true }] } };
  const fetched: (() => void)[] = [];
  globalThis.fetch = (() =>
    new Promise((resolve) => fetched.push(() => resolve(new Response(JSON.stringify(answers[status as 200 | 500]), { status }))))) as typeof fetch;
  const answer = async () => {
    fetched.shift()?.();
    await settled();
  };
  const stage = new Stage();
  await shown(<Popover label="Model">{(close) => <ModelMenu live={stage.live} onChosen={close} />}</Popover>);
  press("Model");
  await settled();
  await settled();
  const panel = () => root.querySelector(".popover-panel")?.textContent;
  assert.equal(panel(), "Loading…");
  await answer();
  assert.equal(panel(), "the disk is fullTry again");
  root.querySelector<HTMLElement>(".problem button")!.focus();
  status = 200;
  press("Try again");
  await settled();
  assert.equal(panel(), "the disk is fullTry again", "the focus stays in it");
  await answer();
  assert.match(panel() ?? "", /^From the next turn ondemo/);
  assert.equal(document.activeElement, root.querySelector(".menu-entry"));
});
