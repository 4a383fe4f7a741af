// The menu at the foot of the list.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Sidebar } from "../src/components/Sidebar";
import { loadLater } from "../src/ondemand";
import { theme } from "../src/theme";
import { press, root, settled, shown } from "./stage";

let asked: string[] = [];
globalThis.fetch = (async (address: string) => {
  asked.push(address);
  return new Response('{"items":[],"total":0}');
}) as typeof fetch;

afterEach(() => render(null, root));

async function opened() {
  await loadLater();
  await shown(<Sidebar />);
  press("Settings");
  await settled();
}
const entry = (text: string) => [...root.querySelectorAll<HTMLElement>(".settings button")].find((one) => one.textContent?.includes(text))!;

test("colours are chosen by their names, and the menu stays", async () => {
  await opened();
  assert.ok(root.querySelector(".settings")?.contains(document.activeElement), "who opens it by a key goes on by keys");
  entry("dark").click();
  await settled();
  assert.equal(theme.value, "dark");
  assert.equal(entry("dark").getAttribute("aria-pressed"), "true");
  assert.equal(document.documentElement.dataset.theme, "dark");
  entry("system").click();
  assert.doesNotMatch(document.cookie, /greenroom_theme/);
});

test("while archived sessions are listed it is said, with a way back", async () => {
  await opened();
  asked = [];
  entry("Archived sessions").click();
  await settled();
  assert.equal(root.querySelector(".settings"), null);
  assert.match(asked[0]!, /archived=true/);
  assert.match(root.querySelector(".list-kind")!.textContent!, /Archived sessions/);
  asked = [];
  press("Back to the others");
  await settled();
  assert.match(asked[0]!, /archived=false/);
  assert.equal(root.querySelector(".list-kind"), null);
});
