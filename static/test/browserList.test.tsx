// List of signed-in browsers.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { BrowserList } from "../src/components/BrowserList";
import { signedOut } from "../src/wire/rest";
import { root, settled } from "./testSession";

test("each browser can be signed out, and this one shows the sign-in page", async () => {
  const row = (id: string, current: boolean) => ({
    id,
    name: `Firefox ${id}`,
    created_at: "2026-01-31T12:00:00.000Z",
    last_seen_at: "2026-01-31T12:00:00.000Z",
    current,
  });
  let items = [row("a", true), row("b", false)];
  const asked: string[] = [];
  globalThis.fetch = (async (address: string, { method }: RequestInit) => {
    asked.push(`${method} ${address}`);
    if (method === "GET") return new Response(JSON.stringify({ items }));
    items = items.filter(({ id }) => !address.endsWith(`/${id}`));
    return new Response(null, { status: 204 });
  }) as typeof fetch;
  render(<BrowserList />, root);
  await settled();
  const names = () => [...root.querySelectorAll("li .browser-name")].map((name) => name.firstChild?.textContent);
  const signOut = async (name: string) => {
    root.querySelector<HTMLButtonElement>(`[aria-label='Sign out ${name}']`)!.click();
    await settled();
  };
  assert.deepEqual(names(), ["Firefox a", "Firefox b"]);
  assert.match(root.querySelector("li")!.textContent!, /this browser/);
  await signOut("Firefox b");
  assert.deepEqual([names(), signedOut.value], [["Firefox a"], false]);
  await signOut("Firefox a");
  assert.equal(signedOut.value, true);
  assert.deepEqual(asked, ["GET /api/browsers", "DELETE /api/browsers/b", "GET /api/browsers", "DELETE /api/browsers/a", "GET /api/browsers"]);
});
