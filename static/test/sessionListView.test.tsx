// List of sessions in the sidebar: groups, titles while typing, archive with undo.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { App } from "../src/components/App";
import "../src/dom/restoreFocus";
import { loadLazy } from "../src/loadLazy";
import { navigate } from "../src/route";
import { search, sessions, showArchived } from "../src/state/sessionList";
import { toast } from "../src/state/toast";
import type { Session } from "../src/wire/frame";
import { press, root, settled, renderText, waitUntil, write } from "./testSession";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });
globalThis.CSS = { escape: (text: string) => text } as typeof CSS;

let stored: Session[] = [];
let failing = false;
/** Holds back answers to a list with a query. */
let held: (() => void)[] | null = null;

const session = (id: string, daysAgo: number): Session =>
  ({ id, title: `Title ${id}`, state: "idle", archived: false, last_seq: 1, updated_at: new Date(Date.now() - daysAgo * 86_400_000).toISOString() }) as Session;

globalThis.fetch = (async (address: string, { method, body }: RequestInit) => {
  const url = new URL(address, "http://127.0.0.1");
  const json = (value: unknown) => new Response(JSON.stringify(value));
  if (url.pathname === "/api/search") return json({ items: [], next_cursor: null, unreadable: 0 });
  if (url.pathname === "/api/options") return json({ agents: [], models: [] });
  if (method === "PATCH") {
    if (failing) return new Response("{}", { status: 503 });
    const id = url.pathname.split("/").at(-1);
    stored = stored.map((one) => (one.id === id ? { ...one, ...(JSON.parse(String(body)) as object) } : one));
    return json(stored.find((one) => one.id === id));
  }
  if (held && url.searchParams.get("q")) await new Promise<void>((resolve) => held!.push(resolve));
  const items = stored.filter(({ title, archived }) => title.toLowerCase().includes(url.searchParams.get("q") ?? "") && String(archived) === url.searchParams.get("archived"));
  return json({ items, next_cursor: null, total: items.length });
}) as typeof fetch;

beforeEach(async () => {
  stored = [session("a", 0), session("b", 0), session("c", 1), session("d", 400)];
  failing = false;
  held = null;
  search.value = "";
  showArchived.value = false;
  sessions.value = null;
  navigate("/sessions");
  await loadLazy();
  await renderText(<App />);
  await waitUntil(() => root.querySelector(".session-item") !== null);
});
afterEach(() => {
  render(null, root);
  toast.value = null;
});

const shown = () => [...root.querySelectorAll(".session-title")].map((title) => title.textContent);
const entry = (id: string) => root.querySelector<HTMLAnchorElement>(`a[href="/sessions/${id}"]`);

async function archive(id: string): Promise<void> {
  const menu = root.querySelector<HTMLElement>(`.session-item [aria-label="Actions for “Title ${id}”"]`)!;
  menu.focus();
  menu.click();
  await settled();
  press(root.querySelector(".list-kind") ? "Unarchive" : "Archive");
  await settled();
}

test("sessions are grouped under headings", () => {
  const groups = [...root.querySelectorAll(".list-group")].map((group) => [group.getAttribute("aria-label"), group.querySelector("h2")?.textContent, group.querySelectorAll("li").length]);
  const month = new Date(Date.now() - 400 * 86_400_000).toLocaleDateString("en", { month: "long", year: "numeric" });
  assert.deepEqual(groups, [["Today", "Today", 2], ["Yesterday", "Yesterday", 1], [month, month, 1]]);
});

test("titles are found while the server has not answered", async () => {
  held = [];
  await write("title C", ".search input");
  assert.deepEqual(shown(), ["Title c"]);
  await waitUntil(() => held!.length > 0);
  assert.deepEqual(shown(), ["Title c"]);
  await write("title", ".search input");
  assert.deepEqual(shown().length, 4, "a shorter text finds more at once");
  await write("nothing", ".search input");
  assert.match(root.querySelector(".session-list")!.textContent!, /No title matches\./);
});

test("archived session comes back to its place with the focus", async () => {
  await archive("b");
  assert.deepEqual(shown(), ["Title a", "Title c", "Title d"]);
  const note = root.querySelector("[role=status] .toast")!;
  assert.match(note.textContent!, /Archived “Title b”/);
  assert.equal(document.activeElement?.textContent, "Undo", "the next key takes it back");
  press("Undo");
  await waitUntil(() => shown().length === 4);
  assert.deepEqual(shown(), ["Title a", "Title b", "Title c", "Title d"]);
  await waitUntil(() => document.activeElement === entry("b"));
  assert.equal(root.querySelector(".toast"), null);
});

test("archived sessions are listed and restored", async () => {
  await archive("c");
  press("Archived sessions");
  await waitUntil(() => shown().length === 1);
  assert.match(root.querySelector(".list-kind")!.textContent!, /Archived sessions/);
  assert.equal(root.querySelector(".sidebar-foot [aria-pressed]")?.getAttribute("aria-pressed"), "true");
  await archive("c");
  assert.match(root.querySelector(".toast")!.textContent!, /Unarchived “Title c”/);
  press("Show active sessions");
  await waitUntil(() => shown().length === 4);
});

test("failed undo says why and can be tried again", async () => {
  await archive("a");
  failing = true;
  press("Undo");
  await settled();
  assert.match(root.querySelector(".toast")!.textContent!, /Couldn't undo: the server answered 503/);
  failing = false;
  press("Try again");
  await waitUntil(() => shown().length === 4);
});

test("note closes by key and button, and a newer one replaces it", async () => {
  await archive("a");
  await archive("b");
  assert.equal(root.querySelectorAll(".toast").length, 1);
  root.querySelector(".toast button")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true }));
  await settled();
  assert.equal(root.querySelector(".toast"), null);
  await archive("c");
  press("Close");
  await settled();
  assert.equal(root.querySelector(".toast"), null);
  assert.deepEqual(shown(), ["Title d"], "closing takes nothing back");
});
