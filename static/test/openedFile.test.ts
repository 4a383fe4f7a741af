// Opened file: parts, kinds of content, edits and conflicts.

import "./testWindow";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { contentKind, lineEndsOf } from "../src/files/fileContent";
import { revealControl } from "../src/files/controlText";
import { flatPieces } from "../src/files/colouredLines";
import { HEX_PAGE, hexLines } from "../src/files/hex";
import { languageOfFile } from "../src/files/languageOfFile";
import { OpenedFile, TEXT_PART, type FileAccess } from "../src/files/openedFile";
import type { FileEntry } from "../src/files/workspaceFiles";
import { RestError } from "../src/wire/rest";
import { settled } from "./testSession";

beforeEach(() => localStorage.clear());

const encoder = new TextEncoder();
const bytesOf = (...parts: (string | number[])[]) => new Uint8Array(parts.flatMap((part) => (typeof part === "string" ? [...encoder.encode(part)] : part)));

/** File of a server. */
class ServedFile implements FileAccess {
  version = 1;
  exists = true;
  type = "text/plain";
  reads: string[] = [];

  constructor(public content: Uint8Array<ArrayBuffer>) {}

  get etag() {
    return `"${this.version}"`;
  }

  entry: FileEntry = { name: "a.txt", path: "a.txt", encoded: false, kind: "file", bytes: 1, modified: null, executable: false, hidden: false, etag: null };

  readPart: FileAccess["readPart"] = async (_, __, { from, length, etag }) => {
    this.reads.push(`${from}+${length}`);
    if (!this.exists) throw new RestError(404, "there is no `a.txt` in the workspace", "not_found");
    if (etag && etag !== this.etag) throw new RestError(412, "changed", "changed");
    return { bytes: this.content.slice(from, from + length), total: this.content.length, etag: this.etag, type: this.type };
  };

  readWhole: FileAccess["readWhole"] = async () => new Blob([this.content]);

  saveText: FileAccess["saveText"] = async (_, __, text, etag) => {
    if (etag === null ? this.exists : !this.exists || etag !== this.etag) throw new RestError(412, "changed", "changed");
    this.write(text);
    return this.etag;
  };

  write(text: string): void {
    this.exists = true;
    this.version += 1;
    this.content = bytesOf(text);
  }

  async open(): Promise<OpenedFile> {
    const file = new OpenedFile("s1", this.entry, this);
    await settled();
    return file;
  }
}

const textOf = (file: OpenedFile) => (file.view.value.kind === "text" ? file.view.value.text : file.view.value.kind);

test("content is told by its bytes", () => {
  const check = (bytes: Uint8Array, type: string, isWhole: boolean, expected: string) => assert.equal(contentKind(bytes, type, isWhole), expected);
  check(bytesOf("häß"), "text/plain", true, "text");
  check(bytesOf(), "text/plain", true, "text");
  check(bytesOf("a", [0], "b"), "text/plain", true, "blob");
  check(bytesOf("a", [0xc3]), "text/plain", true, "blob");
  check(bytesOf("a", [0xc3]), "text/plain", false, "text");
  check(bytesOf("a", [0xf0, 0x9f, 0x8e]), "text/plain", false, "text");
  check(bytesOf([0xff, 0xfe], "a"), "application/octet-stream", true, "blob");
  check(bytesOf([0x89], "PNG"), "image/png", true, "picture");
  check(bytesOf("<svg>"), "image/svg+xml", true, "text");
  assert.deepEqual(["a\nb", "a\r\nb\r\n", "a\r\nb\n", "a\rb"].map(lineEndsOf), ["\n", "\r\n", "mixed", "mixed"]);
});

test("hex lines show offset, bytes and text", () => {
  assert.deepEqual(hexLines(bytesOf("0123456789abcdefg", [0, 0xff]), HEX_PAGE), [
    { offset: "00010000", digits: "30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66", text: "0123456789abcdef" },
    { offset: "00010010", digits: "67 00 ff", text: "g.." },
  ]);
  assert.deepEqual(hexLines(bytesOf(), 0), []);
});

test("long text loads in parts, also if a part ends within a character", async () => {
  const served = new ServedFile(bytesOf("ä".repeat(TEXT_PART)));
  // One byte more, so that each part ends within a character.
  served.content = bytesOf("x", "ä".repeat(TEXT_PART));
  const file = await served.open();
  assert.deepEqual(served.reads, [`0+${HEX_PAGE}`, `${HEX_PAGE}+${TEXT_PART - HEX_PAGE}`]);
  assert.equal(textOf(file), `x${"ä".repeat(TEXT_PART / 2 - 1)}`);
  assert.equal(file.isEditable, false);
  await file.more();
  await file.more();
  assert.ok(textOf(file) === `x${"ä".repeat(TEXT_PART)}`);
  const changed = await served.open();
  served.version += 1;
  await changed.more();
  assert.equal(changed.isOutdated.value, true, "parts of two contents are never mixed");
});

test("edit is saved with its line ends and its tag", async () => {
  const served = new ServedFile(bytesOf("a\r\nb\r\n"));
  const file = await served.open();
  file.startEdit();
  assert.equal(file.edit.value?.text, "a\nb\n");
  file.type("a\nc\n");
  await file.save();
  assert.equal(file.edit.value, null);
  assert.equal(new TextDecoder().decode(served.content), "a\r\nc\r\n");
  assert.equal(textOf(file), "a\r\nc\r\n");
  file.startEdit();
  file.type("d\n");
  await file.save();
  assert.equal(new TextDecoder().decode(served.content), "d\r\n", "the second edit has the new tag");
});

test("changed file asks before it is overwritten", async () => {
  const served = new ServedFile(bytesOf("mine\n"));
  const edited = async () => {
    const file = await served.open();
    file.startEdit();
    file.type("edited\n");
    served.write("theirs\n");
    await file.save();
    assert.deepEqual(file.edit.value?.conflict, { etag: served.etag });
    assert.equal(new TextDecoder().decode(served.content), "theirs\n");
    return file;
  };
  const kept = await edited();
  kept.keepEditing();
  await kept.save();
  assert.ok(kept.edit.value?.conflict, "saving asks again");
  await kept.overwrite();
  assert.equal(new TextDecoder().decode(served.content), "edited\n");
  const reloaded = await edited();
  await reloaded.loadTheirs();
  await settled();
  assert.equal(reloaded.edit.value, null);
  assert.equal(textOf(reloaded), "theirs\n");
  const deleted = await served.open();
  deleted.startEdit();
  deleted.type("again\n");
  served.exists = false;
  await deleted.save();
  assert.deepEqual(deleted.edit.value?.conflict, { etag: null });
  await deleted.overwrite();
  assert.equal(new TextDecoder().decode(served.content), "again\n");
});

test("draft survives a reload and meets a changed file", async () => {
  const served = new ServedFile(bytesOf("one\n"));
  const file = await served.open();
  file.startEdit();
  file.type("two\n");
  file.close();
  const reopened = await served.open();
  assert.equal(reopened.edit.value?.text, "two\n");
  assert.equal(reopened.edit.value?.conflict, null);
  reopened.close();
  served.write("three\n");
  const conflicting = await served.open();
  assert.deepEqual(conflicting.edit.value?.conflict, { etag: served.etag });
  conflicting.cancelEdit();
  assert.equal((await served.open()).edit.value, null);
});

test("file that changes while it is shown loads anew, unless it is edited", async () => {
  const served = new ServedFile(bytesOf("one\n"));
  const file = await served.open();
  served.write("two\n");
  file.listed(served.etag);
  await settled();
  assert.equal(textOf(file), "two\n");
  file.startEdit();
  served.write("three\n");
  file.listed(served.etag);
  await settled();
  assert.equal(file.isOutdated.value, true);
  assert.equal(file.edit.value?.text, "two\n");
});

test("other entries and failures say what they are", async () => {
  const served = new ServedFile(bytesOf([0, 1, 2]));
  assert.equal((await served.open()).view.value.kind, "hex");
  served.exists = false;
  const failed = (await served.open()).view.value;
  assert.match(failed.kind === "failed" ? failed.text : "", /there is no `a.txt`/);
  served.entry = { ...served.entry, kind: "link" };
  assert.equal((await served.open()).view.value.kind, "closed");
});

test("code is split into lines with the classes of its spans", () => {
  assert.deepEqual(flatPieces(["a", { className: "x", pieces: ["b", { className: "y", pieces: ["c"] }] }, ""]), [
    { text: "a", className: "" },
    { text: "b", className: "x" },
    { text: "c", className: "x y" },
  ]);
  assert.deepEqual(["src/main.rs", "a.tsx", "Dockerfile", "x/.bashrc", "Makefile"].map(languageOfFile), ["rs", "typescript", "dockerfile", "bash", "makefile"]);
  assert.equal(revealControl("a\tb\x1b[2J\u202ec\r"), "a\tb\\u{1b}[2J\\u{202e}c");
});
