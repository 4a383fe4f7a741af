// Settings menu of the sidebar.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Sidebar } from "../src/components/Sidebar";
import { loadLazy } from "../src/loadLazy";
import { theme } from "../src/theme";
import { press, root, settled, renderText } from "./testSession";

let asked: string[] = [];
globalThis.fetch = (async (address: string) => {
  asked.push(address);
  return new Response('{"items":[],"total":0}');
}) as typeof fetch;

afterEach(() => render(null, root));

async function openSettings() {
  await loadLazy();
  await renderText(<Sidebar />);
  press("Settings");
  await settled();
}
const entry = (text: string) => [...root.querySelectorAll<HTMLElement>(".settings button")].find((one) => one.textContent?.includes(text))!;

test("colour buttons keep the menu open", async () => {
  await openSettings();
  assert.ok(root.querySelector(".settings")?.contains(document.activeElement), "the menu takes the focus for keyboard users");
  entry("dark").click();
  await settled();
  assert.equal(theme.value, "dark");
  assert.equal(entry("dark").getAttribute("aria-pressed"), "true");
  assert.equal(document.documentElement.dataset.theme, "dark");
  entry("system").click();
  assert.doesNotMatch(document.cookie, /greenroom_theme/);
});

test("list of archived sessions is labelled and can be left", async () => {
  await openSettings();
  asked = [];
  entry("Archived sessions").click();
  await settled();
  assert.equal(root.querySelector(".settings"), null);
  assert.match(asked[0]!, /archived=true/);
  assert.match(root.querySelector(".list-kind")!.textContent!, /Archived sessions/);
  asked = [];
  press("Show active sessions");
  await settled();
  assert.match(asked[0]!, /archived=false/);
  assert.equal(root.querySelector(".list-kind"), null);
});
