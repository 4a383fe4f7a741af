// Dropped files on every part of the page.

import "./testWindow";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import "../src/dom/strayDrops";
import { App } from "../src/components/App";
import { DropZone } from "../src/components/DropZone";
import { Recording } from "../src/components/Recording";
import { SessionPage } from "../src/components/SessionPage";
import { currentSession } from "../src/state/currentSession";
import { press, root, settled, renderText } from "./testSession";

beforeEach(() => {
  localStorage.clear();
  globalThis.fetch = (async () => new Response(JSON.stringify({ items: [], total: 0 }))) as typeof fetch;
});
afterEach(() => render(null, root));

interface DroppedItem {
  file: File;
  isDirectory?: boolean;
}
const item = ({ file, isDirectory = false }: DroppedItem) => ({
  getAsFile: () => file,
  webkitGetAsEntry: () => ({ isDirectory, name: file.name }),
});

/** Returns if the page took the event, and its effect. */
function drag(kind: "dragover" | "drop", on: Element, dropped: DroppedItem[], types = ["Files"]) {
  const dataTransfer = { types, items: dropped.map(item), dropEffect: "copy" };
  const event = Object.assign(new window.Event(kind, { bubbles: true, cancelable: true }), { dataTransfer });
  on.dispatchEvent(event);
  return event.defaultPrevented && dataTransfer.dropEffect;
}

const notes = { file: new File(["a"], "notes.txt") };

test("file dropped outside of a drop zone does not leave the page", async () => {
  await renderText(<App />);
  for (const kind of ["dragover", "drop"] as const) {
    assert.equal(drag(kind, root.querySelector(".sidebar")!, [notes]), "none", kind);
    assert.equal(drag(kind, root.querySelector(".home")!, [notes]), "copy", kind);
    assert.equal(drag(kind, root.querySelector(".sidebar")!, [], ["text/plain"]), false, "the browser handles dropped text");
  }
  await settled();
  assert.equal(root.querySelector(".attachment-name")?.textContent, "notes.txt");
});

test("dropped folder shows a notice and its sibling files are taken", async () => {
  const taken: string[] = [];
  await renderText(<DropZone hint="Drop" onFiles={(files) => void taken.push(...files.map(({ name }) => name))}>the page</DropZone>);
  const zone = root.querySelector(".drop-zone")!;
  drag("drop", zone, [{ file: new File([], "photos"), isDirectory: true }, notes]);
  await settled();
  assert.deepEqual(taken, ["notes.txt"]);
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /“photos” is a folder/);
  press("Dismiss");
  await settled();
  assert.equal(root.querySelector("[role=alert]"), null);
});

test("ended session takes no dropped files", async () => {
  class Silent {
    close() {}
  }
  Object.assign(globalThis, { WebSocket: Silent });
  const ended = (agent_state: string) => ({ seq: 1, at: "", source: "server", observation: "agent_state_changed", content: "", extras: { agent_state, since: "" } });
  for (const [state, effect, hint] of [["idle", "copy", true], ["ended", "none", false]] as const) {
    globalThis.fetch = (async () => new Response(JSON.stringify({ items: [ended(state)] }))) as typeof fetch;
    await renderText(<SessionPage key={state} id={state} />);
    await settled();
    assert.equal(currentSession.value?.live.state.value.agentState, state);
    assert.equal(drag("dragover", root.querySelector(".conversation")!, [notes]), effect);
    await settled();
    assert.equal(root.querySelector(".drop-hint") !== null, hint);
    render(null, root);
  }
});

test("dropped recording opens", async () => {
  await renderText(<Recording file="" />);
  const text = readFileSync("test/recordings/whole-way.jsonl");
  drag("dragover", root.querySelector("h1")!, []);
  await settled();
  assert.equal(root.querySelector(".drop-hint")?.textContent, "Drop to open");
  drag("drop", root.querySelector("h1")!, [{ file: new File([text], "whole-way.jsonl") }]);
  await settled();
  await settled();
  assert.ok(root.querySelector("[role=log] .row"));
});
