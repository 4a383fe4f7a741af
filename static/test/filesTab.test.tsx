// Files tab on the page: tree, menu and dialogs, with the test as the server.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { FilesTab } from "../src/files/FilesTab";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, write } from "./testSession";

beforeEach(() => {
  localStorage.clear();
  Object.assign(window.HTMLDialogElement?.prototype ?? {}, { showModal() {}, close() {} });
});
afterEach(() => render(null, root));

/** Answers of the server, by method and path. Unknown requests fail. */
function serve(answers: Record<string, () => Response>): string[] {
  const asked: string[] = [];
  globalThis.fetch = async (address, { method = "GET" } = {}) => {
    const key = `${method} ${String(address).replace("/api/sessions/s1/", "")}`;
    asked.push(key);
    const answer = answers[key];
    return answer ? answer() : new Response(JSON.stringify({ error: { code: "not_found", message: `no \`${key}\`` } }), { status: 404 });
  };
  return asked;
}

const json = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status });
const item = (path: string, more: object = {}) => ({
  name: path.split("/").at(-1), path, encoded: false, kind: "file", bytes: 4, modified: null, executable: false, hidden: false, etag: '"1"', ...more,
});

test("shared workspace, marked names and the kinds of entries are shown", async () => {
  const items = [item("a%FF", { encoded: true }), item("link", { kind: "link", etag: null }), item("pipe", { kind: "other", etag: null })];
  serve({ "GET files?limit=500": () => json({ items, next_cursor: null, shared: true }) });
  const text = await renderText(<FilesTab live={new TestSession().live} />);
  assert.match(text, /All sessions share this workspace\./);
  assert.match(text, /a%FFencoded/);
  assert.match(text, /linklink/);
  assert.match(text, /pipespecial file/);
  assert.equal(root.querySelectorAll("[role=treeitem][tabindex='0']").length, 1, "the tree is one tab stop");
});

test("file opens from the tree, and an ended session is read-only", async () => {
  const testSession = new TestSession();
  const asked = serve({
    "GET files?limit=500": () => json({ items: [item("a.txt")], next_cursor: null, shared: false }),
    "GET files/a.txt": () => new Response("text", { headers: { "Content-Range": "bytes 0-3/4", ETag: '"1"', "Content-Type": "text/plain" }, status: 206 }),
  });
  await renderText(<FilesTab live={testSession.live} />);
  root.querySelector<HTMLElement>("[role=treeitem]")!.click();
  await settled();
  assert.equal(root.querySelector(".file-lines")?.textContent, "text\n");
  assert.ok(asked.includes("GET files/a.txt"));
  press("Edit");
  await settled();
  assert.equal(root.querySelector<HTMLTextAreaElement>(".file-field")?.value, "text");
  press("Discard");
  testSession.play(new FrameScript().state("ended"));
  await settled();
  assert.match(root.textContent ?? "", /read-only/);
  assert.ok(![...root.querySelectorAll("button")].some((button) => /Edit|New file|New folder/.test(button.getAttribute("aria-label") ?? button.textContent ?? "")));
});

test("failed list says why, and dots stay out of a new name", async () => {
  serve({});
  await renderText(<FilesTab live={new TestSession().live} />);
  assert.match(root.textContent ?? "", /Try again/);
  press("New file");
  await settled();
  await write("../x", "dialog input");
  assert.match(root.querySelector("dialog")?.textContent ?? "", /without \. and \.\./);
  assert.equal(root.querySelector<HTMLButtonElement>("dialog .primary")?.disabled, true);
});

test("picture that cannot be drawn is an error, and downloads only by a click", async () => {
  const picture = { headers: { "Content-Range": "bytes 0-3/4", ETag: '"1"', "Content-Type": "image/png" }, status: 206 };
  const asked = serve({
    "GET files?limit=500": () => json({ items: [item("a.png")], next_cursor: null, shared: false }),
    "GET files/a.png": () => new Response("\u0089PNG", picture),
  });
  URL.createObjectURL = () => "blob:a";
  URL.revokeObjectURL = () => {};
  const session = new TestSession();
  await renderText(<FilesTab live={session.live} />);
  [...root.querySelectorAll<HTMLElement>("[role=treeitem]")].find((row) => row.textContent?.includes("a.png"))!.click();
  await settled();
  root.querySelector("img")!.dispatchEvent(new window.Event("error"));
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /cannot be drawn/);
  assert.ok(!asked.some((one) => one.startsWith("POST")), "no ticket for a download");
  press("Download");
});
