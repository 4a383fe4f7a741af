// The list of sessions: on a narrow screen, where it covers the page, and put away on a wide one.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { App } from "../src/components/App";
import { loadLater } from "../src/ondemand";
import { newest } from "../src/state/list";
import { sidebarAway } from "../src/state/sidebar";
import { isNarrow } from "../src/state/width";
import type { Session } from "../src/wire/frame";
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
  await loadLater();
  for (const link of ["/admin", "/sessions", "/sessions"]) {
    if (!isOpen()) press("Show the list of sessions");
    await settled();
    press("Settings");
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

/** The page as a wide screen has it. */
async function widened() {
  isNarrow.value = false;
  await settled();
}
const byKey = () => document.activeElement!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "b", ctrlKey: true, bubbles: true, cancelable: true }));

test("on a wide screen it is put away and brought back, by a button or by a key, and is kept so", async () => {
  await widened();
  const away = root.querySelector<HTMLElement>(".put-away")!;
  away.focus();
  press("Put the list of sessions away");
  assert.equal(document.documentElement.dataset.sidebar, "away");
  assert.match(document.cookie, /greenroom_sidebar=away/);
  assert.equal(document.activeElement, button(), "who put it away can bring it back");
  byKey();
  assert.equal(sidebarAway.value, false);
  assert.equal(document.documentElement.dataset.sidebar, undefined);
  assert.doesNotMatch(document.cookie, /greenroom_sidebar/);
  assert.equal(document.activeElement, away);
});

test("whoever writes goes on writing when it is put away", async () => {
  await widened();
  const field = root.querySelector("textarea")!;
  field.focus();
  byKey();
  assert.equal(sidebarAway.value, true);
  assert.equal(document.activeElement, field);
  byKey();
});

test("the button that brings it back tells that a session waits", async () => {
  const listed = (id: string, state: Session["state"]) => ({ id, state, title: id, last_seq: 1 }) as Session;
  newest.value = [listed("s1", "running")];
  await settled();
  assert.equal(button().querySelector(".attention"), null);
  newest.value = [listed("s1", "awaiting_confirmation"), listed("s2", "awaiting_confirmation")];
  await settled();
  assert.ok(button().querySelector(".attention"));
  assert.equal(button().getAttribute("aria-label"), "Show the list of sessions, 2 wait for you");
  newest.value = [];
});
