// Rendered rows of a conversation.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { RowView } from "../src/components/RowView";
import type { NoticeRow, ChatRow } from "../src/state/rows";

function draw(row: ChatRow): Element {
  const root = document.createElement("div");
  render(<RowView row={row} />, root);
  return root;
}

test("command in a receipt is set as code without backticks", () => {
  const notice = (text: string, code?: string): NoticeRow => ({ kind: "notice", key: "n", at: "", tone: "quiet", text, code });
  const receipt = draw(notice("Stopped the command `echo `date`` in 6 ms.", "echo `date`"));
  assert.equal(receipt.textContent, "Stopped the command echo `date` in 6 ms.");
  assert.equal(receipt.querySelector("code")?.textContent, "echo `date`");
  assert.equal(draw(notice("no `x` here")).textContent, "no `x` here");
});

test("user text follows the direction of its first letter", () => {
  const user = { kind: "user", key: "u", seq: 1, at: "", text: "שלום", mode: "queue", phase: "delivered", attachments: [] } as const;
  assert.equal(draw({ ...user, attachments: [] }).querySelector(".bubble")?.getAttribute("dir"), "auto");
});
