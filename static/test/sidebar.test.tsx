// Sidebar on a narrow screen, where it covers the page, and hidden on a wide one.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { App } from "../src/components/App";
import { loadLazy } from "../src/loadLazy";
import { newest } from "../src/state/sessionList";
import { sidebarHidden } from "../src/state/sidebar";
import { isNarrow } from "../src/state/narrowScreen";
import type { Session } from "../src/wire/frame";
import { press, root, settled, renderText } from "./testSession";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });

beforeEach(async () => {
  globalThis.fetch = (async () => new Response(JSON.stringify({ items: [], total: 0 }))) as typeof fetch;
  isNarrow.value = true;
  await renderText(<App />);
  button().focus();
  press("Show the session list");
  await settled();
});
afterEach(() => render(null, root));

const button = () => root.querySelector<HTMLElement>(".sidebar-button")!;
const isOpen = () => root.querySelector(".sidebar-open") !== null;

test("opened sidebar takes the focus and makes the page inert", () => {
  assert.ok(isOpen());
  assert.equal(document.activeElement, root.querySelector(".sidebar a"));
  assert.equal(button().getAttribute("aria-expanded"), "true");
  assert.ok(root.querySelector("main")!.hasAttribute("inert"));
});

test("Escape closes the sidebar and restores the focus", async () => {
  const key = new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
  document.activeElement!.dispatchEvent(key);
  await settled();
  assert.equal(isOpen(), false);
  assert.equal(document.activeElement, button());
  assert.equal(button().getAttribute("aria-expanded"), "false");
  assert.equal(root.querySelector("main")!.hasAttribute("inert"), false);
});

test("tap outside closes the sidebar", async () => {
  const beside = root.querySelector<HTMLElement>(".veil")!;
  beside.focus();
  beside.click();
  await settled();
  assert.equal(isOpen(), false);
  assert.equal(document.activeElement, button());
});

test("any link closes the sidebar, also to the current page", async () => {
  await loadLazy();
  for (const link of ["/admin", "/sessions", "/sessions"]) {
    if (!isOpen()) press("Show the session list");
    await settled();
    if (link === "/admin") press("Settings");
    await settled();
    root.querySelector<HTMLElement>(`:is(.sidebar, .settings) a[href="${link}"]`)!.click();
    await settled();
    assert.equal(location.pathname, link);
    assert.equal(isOpen(), false, link);
  }
  assert.equal(document.activeElement?.getAttribute("aria-label"), "Show the session list");
});

test("sidebar beside the page covers nothing", async () => {
  isNarrow.value = false;
  await settled();
  assert.equal(root.querySelector("main")!.hasAttribute("inert"), false);
});

/** Switches to a wide screen. */
async function widenScreen() {
  isNarrow.value = false;
  await settled();
}
const byKey = () => document.activeElement!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "b", ctrlKey: true, bubbles: true, cancelable: true }));

test("wide screen hides and shows the sidebar by button and key, across reloads", async () => {
  await widenScreen();
  const away = root.querySelector<HTMLElement>(".put-away")!;
  away.focus();
  press("Hide the session list");
  assert.equal(document.documentElement.dataset.sidebar, "away");
  assert.match(document.cookie, /greenroom_sidebar=away/);
  assert.equal(document.activeElement, button(), "the counterpart button takes the focus");
  byKey();
  assert.equal(sidebarHidden.value, false);
  assert.equal(document.documentElement.dataset.sidebar, undefined);
  assert.doesNotMatch(document.cookie, /greenroom_sidebar/);
  assert.equal(document.activeElement, away);
});

test("hiding the sidebar keeps the focus in a text field", async () => {
  await widenScreen();
  const field = root.querySelector("textarea")!;
  field.focus();
  byKey();
  assert.equal(sidebarHidden.value, true);
  assert.equal(document.activeElement, field);
  byKey();
});

test("sidebar button marks a waiting session", async () => {
  const listed = (id: string, state: Session["state"]) => ({ id, state, title: id, last_seq: 1 }) as Session;
  newest.value = [listed("s1", "running")];
  await settled();
  assert.equal(button().querySelector(".attention"), null);
  newest.value = [listed("s1", "awaiting_confirmation"), listed("s2", "awaiting_confirmation")];
  await settled();
  assert.ok(button().querySelector(".attention"));
  assert.equal(button().getAttribute("aria-label"), "Show the session list, 2 wait for you");
  newest.value = [];
});
