// Rendered rows of a conversation.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { RowView } from "../src/components/RowView";
import { reduce } from "../src/state/reduce";
import type { NoticeRow, ChatRow } from "../src/state/rows";
import { emptyState } from "../src/state/screenState";
import type { SessionEvent } from "../src/wire/event";
import { checkEvent } from "../src/wire/eventShape";
import { loadLazy } from "../src/loadLazy";
import { settled } from "./testSession";

function draw(row: ChatRow, session?: string): Element {
  const root = document.createElement("div");
  render(<RowView row={row} session={session} />, root);
  return root;
}

test("command in a receipt is set as code without backticks", () => {
  const notice = (text: string, code?: string): NoticeRow => ({ kind: "notice", key: "n", at: "", tone: "quiet", text, code });
  const receipt = draw(notice("Interrupted the command `echo `date`` in 6 ms.", "echo `date`"));
  assert.equal(receipt.textContent, "Interrupted the command echo `date` in 6 ms.");
  assert.equal(receipt.querySelector("code")?.textContent, "echo `date`");
  const several = draw(notice("set `a.b` to `c`; `<b>d</b>` and ` stay text"));
  assert.deepEqual([...several.querySelectorAll("code")].map((code) => code.textContent), ["a.b", "c", "<b>d</b>"]);
  assert.equal(several.querySelector("b"), null);
  assert.equal(several.textContent, "set a.b to c; <b>d</b> and ` stay text");
});

test("summary of the conversation is one quiet row that opens", async () => {
  const event = { seq: 1, at: "", source: "agent", observation: "compaction", content: "The user wants **bread**.", extras: { dropped_bytes: 9, kept: 2 } };
  const [row] = reduce(emptyState, [checkEvent(event as unknown as SessionEvent)]).rows;
  const root = draw(row!);
  assert.equal(root.textContent?.trim(), "Conversation summarised");
  root.querySelector("button")!.click();
  await settled();
  assert.equal(root.querySelector("strong")?.textContent, "bread");
});

test("attached pictures are thumbnails and other files are links", async () => {
  await loadLazy();
  const attachments = ["uploads/a b.png", "uploads/plan.md", "../../admin/x.png"];
  const user = { kind: "user", key: "u", seq: 1, at: "", text: "look", mode: "queue", phase: "delivered", attachments } as const;
  const live = draw({ ...user, attachments }, "s1");
  const addresses = [...live.querySelectorAll("a")].map((link) => link.getAttribute("href"));
  assert.deepEqual(addresses, ["/api/sessions/s1/files/uploads/a%20b.png", "/api/sessions/s1/files/uploads/plan.md"]);
  assert.equal(live.querySelector("img")?.getAttribute("alt"), "uploads/a b.png");
  assert.equal(live.querySelector(".under")?.textContent, "with uploads/plan.md, ../../admin/x.png");
  const recorded = draw({ ...user, attachments });
  assert.equal(recorded.querySelector("a, img"), null);
  assert.equal(recorded.querySelector(".under")?.textContent, `with ${attachments.join(", ")}`);
});

test("user text follows the direction of its first letter", () => {
  const user = { kind: "user", key: "u", seq: 1, at: "", text: "שלום", mode: "queue", phase: "delivered", attachments: [] } as const;
  assert.equal(draw({ ...user, attachments: [] }).querySelector(".bubble")?.getAttribute("dir"), "auto");
});
