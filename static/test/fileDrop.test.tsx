// Files that are dropped, wherever that is.

import "./dom";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import "../src/astray";
import { App } from "../src/components/App";
import { DropZone } from "../src/components/DropZone";
import { Recording } from "../src/components/Recording";
import { SessionPage } from "../src/components/SessionPage";
import { current } from "../src/state/current";
import { press, root, settled, shown } from "./stage";

beforeEach(() => {
  localStorage.clear();
  globalThis.fetch = (async () => new Response(JSON.stringify({ items: [], total: 0 }))) as typeof fetch;
});
afterEach(() => render(null, root));

interface Dropped {
  file: File;
  isDirectory?: boolean;
}
const item = ({ file, isDirectory = false }: Dropped) => ({
  getAsFile: () => file,
  webkitGetAsEntry: () => ({ isDirectory, name: file.name }),
});

/** Whether the page has taken the event, and with what effect. */
function drag(kind: "dragover" | "drop", on: Element, dropped: Dropped[], types = ["Files"]) {
  const dataTransfer = { types, items: dropped.map(item), dropEffect: "copy" };
  const event = Object.assign(new window.Event(kind, { bubbles: true, cancelable: true }), { dataTransfer });
  on.dispatchEvent(event);
  return event.defaultPrevented && dataTransfer.dropEffect;
}

const notes = { file: new File(["a"], "notes.txt") };

test("beside what takes it a file does not make the browser leave the page", async () => {
  await shown(<App />);
  for (const kind of ["dragover", "drop"] as const) {
    assert.equal(drag(kind, root.querySelector(".sidebar")!, [notes]), "none", kind);
    assert.equal(drag(kind, root.querySelector(".home")!, [notes]), "copy", kind);
    assert.equal(drag(kind, root.querySelector(".sidebar")!, [], ["text/plain"]), false, "a text is the browser's");
  }
  await settled();
  assert.equal(root.querySelector(".attachment-name")?.textContent, "notes.txt");
});

test("of a folder it is said what it is, and the files beside it are taken", async () => {
  const taken: string[] = [];
  await shown(<DropZone hint="Drop" onFiles={(files) => void taken.push(...files.map(({ name }) => name))}>the page</DropZone>);
  const zone = root.querySelector(".drop-zone")!;
  drag("drop", zone, [{ file: new File([], "photos"), isDirectory: true }, notes]);
  await settled();
  assert.deepEqual(taken, ["notes.txt"]);
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /“photos” is a folder/);
  press("Dismiss");
  await settled();
  assert.equal(root.querySelector("[role=alert]"), null);
});

test("a session that has ended takes no files, and does not offer it", async () => {
  class Silent {
    close() {}
  }
  Object.assign(globalThis, { WebSocket: Silent });
  const ended = (agent_state: string) => ({ seq: 1, at: "", source: "server", observation: "agent_state_changed", content: "", extras: { agent_state, since: "" } });
  for (const [state, effect, hint] of [["idle", "copy", true], ["ended", "none", false]] as const) {
    globalThis.fetch = (async () => new Response(JSON.stringify({ items: [ended(state)] }))) as typeof fetch;
    await shown(<SessionPage key={state} id={state} />);
    await settled();
    assert.equal(current.value?.live.state.value.agentState, state);
    assert.equal(drag("dragover", root.querySelector(".conversation")!, [notes]), effect);
    await settled();
    assert.equal(root.querySelector(".drop-hint") !== null, hint);
    render(null, root);
  }
});

test("a recording can be dropped", async () => {
  await shown(<Recording file="" />);
  const text = readFileSync("test/recordings/whole-way.jsonl");
  drag("dragover", root.querySelector("h1")!, []);
  await settled();
  assert.equal(root.querySelector(".drop-hint")?.textContent, "Drop to open it");
  drag("drop", root.querySelector("h1")!, [{ file: new File([text], "whole-way.jsonl") }]);
  await settled();
  await settled();
  assert.ok(root.querySelector("[role=log] .row"));
});
