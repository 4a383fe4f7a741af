// Forks in the list: order, groups, levels.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { SessionGroups } from "../src/fork/SessionGroups";
import { treesOf, type SessionTree } from "../src/fork/sessionTree";
import { groupSessions } from "../src/state/sessionGroups";
import type { Session } from "../src/wire/frame";
import { renderText, root } from "./testSession";

afterEach(() => render(null, root));

const NOW = new Date(2026, 2, 31, 12).getTime();

/** `parent`: id of the forked session. */
const session = (id: string, daysAgo: number, parent?: string): Session =>
  ({ id, title: `Title ${id}`, state: "idle", updated_at: new Date(NOW - daysAgo * 86_400_000).toISOString(), ...(parent && { parent: { id: parent, seq: 3 } }) }) as Session;

const drawn = ({ session, forks }: SessionTree): string => session.id + (forks.length > 0 ? `(${forks.map(drawn).join(" ")})` : "");
const trees = (...sorted: Session[]): string => treesOf(sorted).map(({ tree, newest }) => `${drawn(tree)}@${newest.id}`).join(" ");

test("tree stands at the place of its newest session", () => {
  assert.equal(trees(session("fork", 0, "old"), session("other", 1), session("old", 9)), "old(fork)@fork other@other");
  assert.equal(trees(session("a", 0), session("b", 1, "a"), session("d", 2, "c"), session("c", 3, "a")), "a(b c(d))@a");
  const groups = groupSessions([session("old", 9), session("other", 1), session("fork", 0, "old")], NOW);
  assert.deepEqual(groups.map(({ label, items }) => `${label}: ${items.map(drawn).join(" ")}`), ["Today: old(fork)", "Yesterday: other"]);
});

test("fork of a session that is not listed stands at the top", () => {
  assert.equal(trees(session("a", 0, "gone"), session("b", 1, "a")), "a(b)@a");
});

test("sessions that name each other as parents are listed once", () => {
  assert.equal(trees(session("a", 0, "b"), session("b", 1, "a")), "b(a)@a");
  assert.equal(trees(session("self", 0, "self")), "self@self");
});

test("forks are nested lists below their session", async () => {
  await renderText(<SessionGroups sessions={[session("a", 0), session("b", 1, "a"), session("c", 2, "b"), session("d", 3)]} current="c" />);
  const levels = [...root.querySelectorAll(".session-item")].map((item) => {
    let level = 0;
    for (let list = item.closest("ul"); list; list = list.parentElement!.closest("ul")) level += 1;
    return [item.querySelector(".session-title")!.textContent, level];
  });
  assert.deepEqual(levels, [["Title a", 1], ["Title b", 2], ["Title c", 3], ["Title d", 1]]);
  const names = [...root.querySelectorAll(".session-forks")].map((list) => list.getAttribute("aria-label"));
  assert.deepEqual(names, ["Forks of “Title a”", "Forks of “Title b”"]);
  assert.equal(root.querySelector("[aria-current]")?.getAttribute("href"), "/sessions/c");
});
