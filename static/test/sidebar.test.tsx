// The list of sessions on a narrow screen, where it covers the page.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { App } from "../src/components/App";
import { isNarrow } from "../src/state/width";
import { press, root, settled, shown } from "./stage";

beforeEach(async () => {
  globalThis.fetch = (async () => new Response(JSON.stringify({ items: [], total: 0 }))) as typeof fetch;
  isNarrow.value = true;
  await shown(<App />);
  button().focus();
  press("Show the list of sessions");
  await settled();
});
afterEach(() => render(null, root));

const button = () => root.querySelector<HTMLElement>(".sidebar-button")!;
const isOpen = () => root.querySelector(".sidebar-open") !== null;

test("whoever opens the list is in it, and out of the page that it covers", () => {
  assert.ok(isOpen());
  assert.equal(document.activeElement, root.querySelector(".sidebar a"));
  assert.equal(button().getAttribute("aria-expanded"), "true");
  assert.ok(root.querySelector("main")!.hasAttribute("inert"));
});

test("Escape closes it and gives the focus back", async () => {
  const key = new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
  document.activeElement!.dispatchEvent(key);
  await settled();
  assert.equal(isOpen(), false);
  assert.equal(document.activeElement, button());
  assert.equal(button().getAttribute("aria-expanded"), "false");
  assert.equal(root.querySelector("main")!.hasAttribute("inert"), false);
});

test("so does a tap beside it", async () => {
  const beside = root.querySelector<HTMLElement>(".veil")!;
  beside.focus();
  beside.click();
  await settled();
  assert.equal(isOpen(), false);
  assert.equal(document.activeElement, button());
});

test("a link closes it, also the one to where one is", async () => {
  for (const link of ["/admin", "/sessions", "/sessions"]) {
    if (!isOpen()) press("Show the list of sessions");
    await settled();
    root.querySelector<HTMLElement>(`.sidebar a[href="${link}"]`)!.click();
    await settled();
    assert.equal(location.pathname, link);
    assert.equal(isOpen(), false, link);
  }
  assert.equal(document.activeElement?.getAttribute("aria-label"), "Show the list of sessions");
});

test("where it stands beside the page nothing is covered", async () => {
  isNarrow.value = false;
  await settled();
  assert.equal(root.querySelector("main")!.hasAttribute("inert"), false);
});
