// How the page of a session is divided between conversation and workspace; kept for each session in this browser.

export type Side = "chat" | "workspace";
export const TABS = ["plan", "commands", "events"] as const;
export type Tab = (typeof TABS)[number];

export interface Layout {
  /** The conversation's share of the width (on a narrow screen: of the height), 0 to 1. */
  share: number;
  /** The side that is folded away. */
  folded: Side | null;
  /** The tab that the person chose; `null`: whichever had something to show when it opened. */
  tab: Tab | null;
}

/** Neither side gets narrower by dragging; folding it away is an act of its own. */
export const SMALLEST = 0.25;
export const LARGEST = 0.75;

export function clampShare(share: number): number {
  return Math.min(LARGEST, Math.max(SMALLEST, share));
}

/** The workspace waits until it is asked for. */
export const AT_FIRST: Layout = { share: 0.62, folded: "workspace", tab: null };

/** How a session begins that was not laid out yet: as `last` was left, but for what was about that one alone. */
export function layoutOfNext(last: Layout, isNarrow: boolean): Layout {
  return { ...last, folded: last.folded === "workspace" || isNarrow ? "workspace" : null, tab: null };
}

/** The layout that was kept, as far as it makes sense. */
export function readLayout(kept: string | null, fallback = AT_FIRST): Layout {
  try {
    const read = JSON.parse(kept ?? "null") as Partial<Layout> | null;
    return {
      share: typeof read?.share === "number" ? clampShare(read.share) : fallback.share,
      folded: read?.folded === "chat" || read?.folded === "workspace" || read?.folded === null ? read.folded : fallback.folded,
      tab: TABS.find((tab) => tab === read?.tab) ?? fallback.tab,
    };
  } catch {
    return fallback;
  }
}
