// Model menu without an immediate answer of the server.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { ModelMenu } from "../src/components/ModelMenu";
import { Popover } from "../src/components/Popover";
import "../src/dom/restoreFocus";
import { press, root, settled, renderText, TestSession } from "./testSession";

test("menu shows the error and loads after a retry", async () => {
  let status = 500;
  const answers = { 500: { error: { message: "the disk is full" } }, 200: { models: [{ name: "demo", demo: true }] } };
  const fetched: (() => void)[] = [];
  globalThis.fetch = (() =>
    new Promise((resolve) => fetched.push(() => resolve(new Response(JSON.stringify(answers[status as 200 | 500]), { status }))))) as typeof fetch;
  const answer = async () => {
    fetched.shift()?.();
    await settled();
  };
  const testSession = new TestSession();
  await renderText(<Popover label="Model">{(close) => <ModelMenu live={testSession.live} onChosen={close} />}</Popover>);
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
  assert.equal(panel(), "the disk is fullTry again", "the focus stays in the menu");
  await answer();
  assert.match(panel() ?? "", /^Applies from the next turndemo/);
  assert.equal(document.activeElement, root.querySelector(".menu-entry"));
});
