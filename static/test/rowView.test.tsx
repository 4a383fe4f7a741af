// The rows of a conversation as they are drawn.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { RowView } from "../src/components/RowView";
import type { NoticeRow, Row } from "../src/state/rows";

function draw(row: Row): Element {
  const root = document.createElement("div");
  render(<RowView row={row} />, root);
  return root;
}

test("a command in a receipt is set as code, without the backticks around it", () => {
  const notice = (text: string, code?: string): NoticeRow => ({ kind: "notice", key: "n", at: "", tone: "quiet", text, code });
  const receipt = draw(notice("Stopped the command `echo `date`` in 6 ms.", "echo `date`"));
  assert.equal(receipt.textContent, "Stopped the command echo `date` in 6 ms.");
  assert.equal(receipt.querySelector("code")?.textContent, "echo `date`");
  assert.equal(draw(notice("no `x` here")).textContent, "no `x` here");
});

test("what a person writes goes the way of its first letter", () => {
  const user = { kind: "user", key: "u", seq: 1, at: "", text: "שלום", mode: "queue", phase: "delivered", attachments: [] } as const;
  assert.equal(draw({ ...user, attachments: [] }).querySelector(".bubble")?.getAttribute("dir"), "auto");
});
