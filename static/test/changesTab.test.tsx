// Changes tab on the page, with the test as the server.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { ChangesTab } from "../src/changes/ChangesTab";
import { changesOf, FILES_AT_ONCE } from "../src/changes/changesState";
import { isSideBySide, toggleSideBySide } from "../src/changes/diffView";
import { draftKey } from "../src/state/pendingStorage";
import { changedFile, changeSet, checkpoint } from "./checkpointRows";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession, write } from "./testSession";

interface Answer {
  status?: number;
  value: unknown;
}

let asked: string[] = [];

beforeEach(() => {
  localStorage.clear();
  Object.assign(globalThis, { Event: window.Event });
  Object.assign(window.HTMLDialogElement?.prototype ?? {}, { showModal() {}, close() {} });
});
afterEach(() => {
  render(null, root);
  if (isSideBySide.value) toggleSideBySide();
  // The state of a session survives its tab.
  Object.assign(changesOf("s1").scope, { value: "turn" });
  for (const signal of ["list", "diff", "dialog", "restored"] as const) Object.assign(changesOf("s1")[signal], { value: null });
  Object.assign(changesOf("s1").shownFiles, { value: FILES_AT_ONCE });
  changesOf("s1").comments.take();
});

const ITEMS = [checkpoint("start", "start"), checkpoint("turn-1", "turn"), checkpoint("turn-2", "turn")];
const page = (more: object = {}) => ({ offered: true, reason: null, items: ITEMS, damage: null, stored_bytes: 1, limit_bytes: 2, ...more });
const error = (status: number, code: string, message: string): Answer => ({ status, value: { error: { code, message } } });

/** Answers by method and path, without the query for a diff. Notes each request with its body. */
function serve(answers: Record<string, Answer | ((query: URLSearchParams) => Answer)>): void {
  asked = [];
  globalThis.fetch = async (address, { method = "GET", body } = {}) => {
    const { pathname, searchParams } = new URL(String(address), "http://127.0.0.1");
    const key = `${method} ${pathname.replace("/api/sessions/s1/", "")}`;
    asked.push([key, searchParams.toString(), body].filter(Boolean).join(" "));
    const found = answers[key];
    const { status = 200, value } = typeof found === "function" ? found(searchParams) : (found ?? error(404, "not_found", `no \`${key}\``));
    return new Response(typeof value === "string" ? value : JSON.stringify(value), { status });
  };
}

async function shown(session = new TestSession()): Promise<string> {
  await renderText(<ChangesTab live={session.live} />);
  await settled();
  return root.textContent ?? "";
}

const choose = async (scope: string) => {
  const select = root.querySelector("select")!;
  select.value = scope;
  select.dispatchEvent(new window.Event("change", { bubbles: true }));
  await settled();
};
const key = (name: string, target: Element = document.activeElement!) =>
  target.dispatchEvent(new window.KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

test("kinds of changes are named with their counts", async () => {
  const files = [
    changedFile("made.txt", { change: "created", old_mode: null, added: 12, removed: 0 }),
    changedFile("gone.txt", { change: "deleted", new_mode: null, added: 0, removed: 3 }),
    changedFile("b.txt", { change: "moved", from: "a.txt", diff: "", added: 0, removed: 0 }),
    changedFile("run.sh", { new_mode: "100755" }),
    changedFile("x.png", { binary: true, diff: null, added: null, removed: null, old_bytes: 10, new_bytes: 2048 }),
    changedFile("a%FF", { encoded: true }),
  ];
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet(files, { added: 14, removed: 5 }) } });
  const text = await shown();
  assert.deepEqual(asked, ["GET checkpoints", "GET diff from=turn-1&to=turn-2"]);
  for (const part of [/6 changed files/, /made\.txtnew\+12/, /gone\.txtdeleted/, /Renamed from a\.txt/, /now executable/, /Binary: 10 B → 2\.0 KiB/, /a%FFencoded/]) {
    assert.match(text, part);
  }
});

test("scopes ask for their range, and the newest checkpoint is remembered as seen", async () => {
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) } });
  await shown();
  assert.equal(localStorage.getItem(`${draftKey("s1")}.checkpoint`), null, "one turn is not everything");
  await choose("seen");
  assert.equal(asked.at(-1), "GET diff from=start&to=now");
  assert.equal(localStorage.getItem(`${draftKey("s1")}.checkpoint`), "turn-2");
  await choose("at:turn-1");
  assert.equal(asked.at(-1), "GET diff from=start&to=turn-1");
  render(null, root);
  await shown();
  await choose("seen");
  assert.equal(asked.at(-1), "GET diff from=turn-2&to=now", "the next look begins there");
});

test("shared workspace, a damaged store and a failed diff say why", async () => {
  serve({ "GET checkpoints": { value: page({ offered: false, items: [], reason: "All sessions share one workspace." }) } });
  assert.match(await shown(), /All sessions share one workspace\./);
  assert.deepEqual(asked, ["GET checkpoints"]);
  render(null, root);
  serve({ "GET checkpoints": { value: page({ damage: "`pack-1` has a wrong checksum" }) }, "GET diff": error(500, "io", "the store cannot be read") });
  const text = await shown();
  assert.match(text, /The checkpoints are damaged: pack-1 has a wrong checksum/);
  assert.match(text, /the store cannot be read/);
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) } });
  press("Try again");
  await settled();
  assert.doesNotMatch(root.textContent ?? "", /cannot be read/);
});

test("partial checkpoint and what was left out are named", async () => {
  const items = [ITEMS[0], ITEMS[1], checkpoint("turn-2", "turn", { partial: true })];
  const diff = changeSet([changedFile("a")], { to: "turn-2", left_out: [{ path: "node_modules", reason: "ignored" }], left_out_more: 4 });
  serve({ "GET checkpoints": { value: page({ items }) }, "GET diff": { value: diff } });
  const text = await shown();
  assert.match(text, /Turn 2 is partial: it may hold later changes\./);
  assert.match(text, /Not captured: node_modules \(ignored\), 4 others/);
});

test("long diff is closed at first, opens in parts, and a truncated one is asked for", async () => {
  const lines = Array.from({ length: 10_000 }, (_, n) => `+line ${n}`);
  const long = changedFile("long.txt", { change: "created", added: 10_000, removed: 0, diff: `@@ -0,0 +1,10000 @@\n${lines.join("\n")}\n` });
  const cut = changedFile("cut.txt", { diff: null, truncated: true, added: 7, removed: 0 });
  const whole = { ...cut, diff: "@@ -0,0 +1 @@\n+whole\n", truncated: false };
  serve({
    "GET checkpoints": { value: page() },
    "GET diff": (query) => ({ value: changeSet(query.get("path") === "cut.txt" ? [whole] : [long, cut]) }),
  });
  await shown();
  assert.equal(root.querySelectorAll("tr").length, 0);
  root.querySelector<HTMLElement>(".change-title")!.click();
  await settled();
  assert.equal(root.querySelectorAll("tr").length, 1000);
  press("Show 1,000 more of 9,001 lines");
  await settled();
  assert.equal(root.querySelectorAll("tr").length, 2000);
  root.querySelectorAll<HTMLElement>(".change-title")[1]!.click();
  await settled();
  press("Show 7 changed lines");
  await settled();
  assert.match(asked.at(-1)!, /path=cut\.txt/);
  assert.match(root.textContent ?? "", /\+whole/);
});

test("side by side shows both numbers beside their code", async () => {
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) } });
  await shown();
  const cells = () => [...root.querySelectorAll("tr[data-row='1'] td")].map((cell) => cell.textContent);
  assert.deepEqual(cells(), ["1", "", "−old"]);
  press("Side by side");
  await settled();
  assert.deepEqual(cells(), ["1", "−old", "1", "+new"]);
  assert.equal(localStorage.getItem("greenroom.diff-side-by-side"), "on");
});

test("keys go through hunks, files and lines", async () => {
  const two = "@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n";
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a", { diff: two }), changedFile("b")]) } });
  await shown();
  const pane = root.querySelector(".changes")!;
  const at = () => document.activeElement?.textContent?.replace(/\d added.*/, "");
  key("n", pane);
  assert.equal(at(), "@@ -1 +1 @@");
  key("n");
  assert.equal(at(), "@@ -9 +9 @@");
  key("ArrowDown");
  assert.equal(at(), "9−c");
  key("p");
  assert.equal(at(), "@@ -9 +9 @@");
  key("N");
  assert.match(at()!, /^b/);
  key("P");
  assert.match(at()!, /^a/);
  assert.equal(root.querySelectorAll("tr[tabindex='0']").length, 2, "each diff is one tab stop");
});

test("comment is written, changed, removed, and goes into the draft with file and line", async () => {
  const composer = document.body.appendChild(document.createElement("div"));
  composer.className = "composer";
  const draft = composer.appendChild(document.createElement("textarea"));
  draft.value = "Please look.";
  let typed = "";
  draft.addEventListener("input", () => (typed = draft.value));
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("src/a.rs")]) } });
  await shown();
  root.querySelector<HTMLElement>(".diff-number.added[data-side=new]")!.click();
  await settled();
  await write("Why new?");
  press("Comment");
  await settled();
  key("Enter", root.querySelector("tr[data-row='1']")!);
  await settled();
  await write("Keep this.");
  press("Comment");
  await settled();
  assert.match(root.querySelector(".comment-strip")?.textContent ?? "", /^2 comments/);
  press("Edit");
  await settled();
  await write("Keep this line.");
  press("Comment");
  await settled();
  press("2 comments");
  await settled();
  press("Remove the comment on line 1");
  await settled();
  assert.match(root.querySelector(".comment-strip")?.textContent ?? "", /1 comment(?!s)/);
  assert.equal(JSON.parse(localStorage.getItem(`${draftKey("s1")}.comments`)!).length, 1, "it survives a reload");
  press("Add to your message");
  await settled();
  assert.equal(typed, "Please look.\n\n`src/a.rs`, line 1 before the change:\n> old\n\nKeep this line.");
  assert.equal(root.querySelector(".comment-strip"), null);
  composer.remove();
});

test("revert asks first, names what is lost, and brings a moved file back", async () => {
  const result = { checkpoint: "restore-3", before: "before-restore-3", restored: 1, removed: 0, failed: [] };
  const moved = changedFile("b.txt", { change: "moved", from: "a.txt", diff: "" });
  serve({
    "GET checkpoints": { value: page() },
    "GET diff": { value: changeSet([moved], { from: "turn-1", to: "turn-2" }) },
    "POST checkpoints/turn-1/restore": { value: result },
  });
  await shown();
  press("Revert b.txt");
  await settled();
  assert.match(root.querySelector("dialog")?.textContent ?? "", /b\.txt becomes a\.txt again, as at: Turn 1\./);
  assert.ok(!asked.some((one) => one.startsWith("POST")));
  press("Revert");
  await settled();
  assert.deepEqual(asked.filter((one) => one.startsWith("POST")), [
    'POST checkpoints/turn-1/restore {"path":"a.txt","encoded":false}',
    'POST checkpoints/turn-1/restore {"path":"b.txt","encoded":false}',
  ]);
  assert.match(root.textContent ?? "", /2 files restored, 0 removed\./);
});

test("restore of the workspace: choice, running work, errors and failed paths", async () => {
  const session = new TestSession();
  let answer = error(409, "busy", "a turn runs; interrupt it first");
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) }, "POST checkpoints/start/restore": () => answer });
  await shown(session);
  press("Actions for the changes");
  await settled();
  press("Restore the workspace…");
  await settled();
  const dialog = () => root.querySelector("dialog")!;
  const select = dialog().querySelector("select")!;
  select.value = "start";
  select.dispatchEvent(new window.Event("change", { bubbles: true }));
  await settled();
  assert.match(dialog().textContent ?? "", /Queued messages wait\..*The present state is kept as a checkpoint\./);
  press("Restore");
  await settled();
  assert.match(dialog().textContent ?? "", /a turn runs; interrupt it first/);
  session.play(new FrameScript().addObservation("chat", "go", { turn: "turn-9" }).state("running"));
  await settled();
  assert.match(dialog().textContent ?? "", /The agent is working\./);
  assert.equal(dialog().querySelector<HTMLButtonElement>(".danger")?.disabled, true);
  session.listener.received([{ local: "rewound" } as never]);
  await settled();
  answer = { value: { checkpoint: "restore-3", before: "turn-2", restored: 2, removed: 1, failed: [{ path: "locked", encoded: false, reason: "permission denied" }] } };
  press("Restore");
  await settled();
  assert.equal(root.querySelector("dialog"), null);
  assert.match(root.textContent ?? "", /2 files restored, 1 removed\. Not restored: locked \(permission denied\)/);
  press("Take it back…");
  await settled();
  assert.equal(dialog().querySelector("select")?.value, "turn-2");
});

test("ended session offers no way back and no comments", async () => {
  const session = new TestSession();
  session.play(new FrameScript().state("ended"));
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) } });
  await shown(session);
  root.querySelector<HTMLElement>(".diff-number.added")!.click();
  press("Actions for the changes");
  await settled();
  assert.doesNotMatch(root.textContent ?? "", /Restore the workspace/);
  assert.equal(root.querySelector("textarea"), null);
  assert.equal(root.querySelector("[aria-label^=Revert]"), null);
});

test("patch that fails says why", async () => {
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet([changedFile("a")]) }, "GET patch": error(404, "not_found", "the checkpoint is gone") });
  await shown();
  press("Actions for the changes");
  await settled();
  press("Download the patch");
  await settled();
  assert.match(root.textContent ?? "", /the checkpoint is gone/);
});

test("files beyond the first hundred come by a press, or by the list", async () => {
  const files = Array.from({ length: 250 }, (_, n) => changedFile(`f${n}.txt`));
  files[0] = changedFile("f0.txt", { added: 10_000, removed: 0 });
  serve({ "GET checkpoints": { value: page() }, "GET diff": { value: changeSet(files) } });
  const text = await shown();
  assert.match(text, /250 changed files/);
  assert.equal(root.querySelectorAll(".change").length, 100);
  // The long diff is closed and takes no room from the others.
  assert.deepEqual([...root.querySelectorAll(".change-title")].slice(0, 2).map((one) => one.getAttribute("aria-expanded")), ["false", "true"]);
  press("Show 100 more of 150 files");
  await settled();
  assert.equal(root.querySelectorAll(".change").length, 200);
  root.querySelectorAll<HTMLButtonElement>(".changed-files .file-row")[220]!.click();
  await settled();
  assert.equal(document.activeElement?.getAttribute("data-key"), "modified /f220.txt");
});
