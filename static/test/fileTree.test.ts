// Tree of the workspace: levels, keys, dots, search, uploads.

import "./testWindow";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { FileSearch } from "../src/files/fileSearch";
import { FileTree, type TreeRow } from "../src/files/fileTree";
import { FolderUploads } from "../src/files/folderUploads";
import { moveInTree, TreeTypeahead } from "../src/files/treeKeys";
import { pathProblem } from "../src/files/entryName";
import { addressOfFile, archiveAddress, childOf, parentOf, WORKSPACE_ROOT, type FileEntry, type FilePage } from "../src/files/workspaceFiles";
import { RestError } from "../src/wire/rest";
import { settled } from "./testSession";

beforeEach(() => localStorage.clear());

const entry = (path: string, more: Partial<FileEntry> = {}): FileEntry => ({
  name: path.slice(path.lastIndexOf("/") + 1), path, encoded: false, kind: "file", bytes: 1, modified: null, executable: false, hidden: false, etag: `"${path}"`, ...more,
});
const directory = (path: string) => entry(path, { kind: "directory", etag: null });

/** Workspace whose lists the test writes. */
class TestWorkspace {
  readonly levels = new Map<string, FileEntry[]>();
  /** Entries of a page. */
  pageSize = 100;
  readonly tree = new FileTree("s1", ({ directory, cursor }) => this.list(directory.path, cursor));

  constructor(levels: Record<string, FileEntry[]>) {
    this.levels = new Map(Object.entries(levels));
  }

  async list(path: string, cursor: string | null): Promise<FilePage> {
    const all = this.levels.get(path);
    if (!all) throw new RestError(404, `there is no \`${path}\` in the workspace`, "not_found");
    const start = Number(cursor ?? 0);
    const end = start + this.pageSize;
    return { items: all.slice(start, end), next_cursor: end < all.length ? String(end) : null, shared: true };
  }
}

const shown = (tree: FileTree) => tree.rows.value.map((row) => (row.kind === "entry" ? `${" ".repeat(row.depth - 1)}${row.entry.name}${row.isChanged ? " •" : ""}` : row.kind));

test("directories load when they are opened, and come first", async () => {
  const { tree } = new TestWorkspace({ "": [entry("b.txt"), directory("src"), entry("a10.txt"), entry("a9.txt")], src: [entry("src/main.rs")], });
  await tree.refresh();
  assert.deepEqual(shown(tree), ["src", "a9.txt", "a10.txt", "b.txt"]);
  assert.equal(tree.isShared.value, true);
  tree.toggle(directory("src"));
  assert.deepEqual(shown(tree).slice(0, 2), ["src", "loading"]);
  await settled();
  assert.deepEqual(shown(tree).slice(0, 2), ["src", " main.rs"]);
  tree.toggle(directory("src"));
  assert.equal(shown(tree).length, 4);
});

test("long directory loads in pages, and a refresh keeps what was loaded", async () => {
  const workspace = new TestWorkspace({ "": Array.from({ length: 5 }, (_, n) => entry(`f${n}`)) });
  workspace.pageSize = 2;
  const { tree } = workspace;
  await tree.refresh();
  assert.deepEqual(shown(tree), ["f0", "f1", "more"]);
  const [first] = tree.rows.value;
  assert.equal(first?.kind === "entry" && first.siblings, -1, "the number is unknown");
  await tree.more(WORKSPACE_ROOT);
  assert.deepEqual(shown(tree), ["f0", "f1", "f2", "f3", "more"]);
  await tree.refresh();
  assert.deepEqual(shown(tree), ["f0", "f1", "f2", "f3", "more"]);
});

test("deleted directory closes, and another failure can be retried", async () => {
  const workspace = new TestWorkspace({ "": [directory("src")], src: [entry("src/a")] });
  const { tree } = workspace;
  await tree.refresh();
  tree.toggle(directory("src"));
  await settled();
  workspace.levels.delete("src");
  workspace.levels.set("", []);
  await tree.refresh();
  assert.deepEqual(shown(tree), ["empty"]);
  workspace.levels.delete("");
  await tree.refresh();
  const [row] = tree.rows.value;
  assert.match(row?.kind === "problem" ? row.text : "", /there is no/);
});

test("dots mark what changed since the person looked", async () => {
  const workspace = new TestWorkspace({ "": [directory("src"), entry("a"), entry("b")], src: [entry("src/c")] });
  const { tree } = workspace;
  await tree.refresh();
  tree.toggle(directory("src"));
  await settled();
  assert.ok(!shown(tree).join().includes("•"), "the first look is no change");
  workspace.levels.set("", [directory("src"), entry("a", { etag: '"2"' }), entry("b"), entry("new")]);
  workspace.levels.set("src", [entry("src/c", { etag: '"2"' })]);
  await tree.refresh();
  assert.deepEqual(shown(tree), ["src", " c •", "a •", "b", "new •"]);
  tree.toggle(directory("src"));
  assert.equal(shown(tree)[0], "src •", "a closed directory shows the change inside");
  tree.seen.look(entry("a", { etag: '"2"' }));
  assert.deepEqual(shown(tree), ["src •", "a", "b", "new •"]);
  const reloaded = new FileTree("s1", ({ directory, cursor }) => workspace.list(directory.path, cursor));
  await reloaded.refresh();
  assert.deepEqual(shown(reloaded), ["src", "a", "b", "new •"], "the memory survives a reload");
});

const row = (name: string, depth: number, more: Partial<Extract<TreeRow, { kind: "entry" }>> = {}): TreeRow => ({
  kind: "entry", key: name, entry: entry(name), depth, isOpen: false, isChanged: false, position: 1, siblings: 1, ...more,
});

test("keys move as in a tree view", () => {
  const rows = [row("src", 1, { entry: directory("src"), isOpen: true }), row("lib", 2, { entry: directory("lib") }), row("main", 2), row("z", 1)];
  const check = (active: string, key: string, expected: string | null) => {
    const move = moveInTree(rows, active, key);
    const text = move && (("to" in move && `to ${move.to.key}`) || ("toggle" in move && `toggle ${move.toggle.key}`) || ("choose" in move && `choose ${move.choose.key}`));
    assert.equal(text, expected, `${active} ${key}`);
  };
  check("src", "ArrowDown", "to lib");
  check("src", "ArrowUp", null);
  check("z", "ArrowDown", null);
  check("main", "Home", "to src");
  check("main", "End", "to z");
  check("src", "ArrowRight", "to lib");
  check("lib", "ArrowRight", "toggle lib");
  check("main", "ArrowRight", null);
  check("main", "ArrowLeft", "to src");
  check("src", "ArrowLeft", "toggle src");
  check("z", "ArrowLeft", null);
  check("lib", "Enter", "toggle lib");
  check("main", " ", "choose main");
  check("main", "x", null);
});

test("typing finds a row by its first letters", () => {
  const rows = ["alpha", "beta", "beech", "gamma"].map((name) => row(name, 1));
  const typeahead = new TreeTypeahead();
  const find = (active: string, letter: string, at: number) => typeahead.find(rows, active, letter, at)?.key;
  assert.equal(find("alpha", "b", 1000), "beta");
  assert.equal(find("beta", "e", 1100), "beta");
  assert.equal(find("beta", "e", 1200), "beech");
  assert.equal(find("beech", "b", 5000), "beta", "a pause begins anew, and the search goes round");
  assert.equal(find("beta", "b", 9000), "beech", "a repeated letter walks on");
  assert.equal(find("beech", "x", 12_000), undefined);
});

test("paths keep the form that the server returns", () => {
  assert.equal(addressOfFile("s1", entry("a b/ä?.txt")), "/api/sessions/s1/files/a%20b/%C3%A4%3F.txt");
  assert.equal(addressOfFile("s1", entry("a%FF", { encoded: true }), { download: "true" }), "/api/sessions/s1/files/a%25FF?encoded=true&download=true");
  assert.equal(archiveAddress("s1", WORKSPACE_ROOT), "/api/sessions/s1/archive?format=zip");
  assert.deepEqual(parentOf(entry("a/b/c")), { path: "a/b", encoded: false });
  assert.deepEqual(parentOf(entry("a")), WORKSPACE_ROOT);
  assert.deepEqual(parentOf(entry("%C3%A4/b%FF", { encoded: true })), { path: "ä", encoded: false }, "the parent has a plain name");
  assert.deepEqual(parentOf(entry("a%FF/b", { encoded: true })), { path: "a%FF", encoded: true });
  assert.deepEqual(childOf({ path: "a%FF", encoded: true }, "ä 1%"), { path: "a%FF/%C3%A4 1%25", encoded: true });
  assert.equal(pathProblem("notes/todo.md"), "");
  for (const path of ["/a", "a/", "a//b", "../a", "a/./b"]) assert.notEqual(pathProblem(path), "", path);
});

test("search goes on until an entry is found, and the newest text wins", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const asked: string[] = [];
  const search = new FileSearch("s1", async ({ search: text, cursor }) => {
    asked.push(`${text} ${cursor}`);
    return cursor === null ? { items: [], next_cursor: "1" } : { items: [entry(`${text}.rs`)], next_cursor: null };
  });
  search.type("mai");
  search.type(" main ");
  t.mock.timers.tick(250);
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  assert.deepEqual(asked, ["main null", "main 1"]);
  assert.deepEqual(search.result.value?.entries.map(({ name }) => name), ["main.rs"]);
  search.type("");
  assert.equal(search.result.value, null);
});

test("rejected upload keeps its reason, and an existing file is replaced on request", async () => {
  const sent: string[] = [];
  let done = 0;
  const send = async (address: string, _: Blob, { headers }: { headers: Record<string, string> }) => {
    sent.push(`${address} ${headers["If-None-Match"] ?? ""}`);
    if (address.endsWith("big.iso")) throw new RestError(413, "`big.iso` has more than 64 MiB; see `server.max_upload`", "too_large");
    if (headers["If-None-Match"]) throw new RestError(412, "exists", "exists");
  };
  const uploads = new FolderUploads("s1", () => (done += 1), send);
  const files = ["big.iso", "sub/a.txt"].map((path) => ({ path, file: new File(["x"], path) }));
  await uploads.add({ path: "to", encoded: false }, files);
  assert.match(uploads.all.value[0]?.problem ?? "", /server.max_upload/);
  assert.equal(uploads.all.value[1]?.exists, true);
  uploads.replace(uploads.all.value[1]!);
  await settled();
  assert.deepEqual(sent, ["/api/sessions/s1/files/to/big.iso *", "/api/sessions/s1/files/to/sub/a.txt *", "/api/sessions/s1/files/to/sub/a.txt "]);
  assert.deepEqual([uploads.all.value.length, done], [1, 1]);
  await uploads.add(WORKSPACE_ROOT, Array.from({ length: 1001 }, () => files[1]!));
  assert.match(uploads.problem.value, /At most 1000 files/);
});
