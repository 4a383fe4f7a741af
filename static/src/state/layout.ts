// Layout of a session page: conversation and workspace. Stored per session in this browser.

export type PaneSide = "chat" | "workspace";
export const TABS = ["plan", "commands", "terminal", "files", "changes", "browser", "events"] as const;
export type WorkspaceTab = (typeof TABS)[number];

export interface PaneLayout {
  /** Conversation's share of the width, 0 to 1. */
  share: number;
  /** Folded side. */
  folded: PaneSide | null;
  /** Tab chosen by the user. `null`: the first tab with content. */
  tab: WorkspaceTab | null;
}

/** Limits of dragging. Folding a side is a separate action. */
export const MIN_SHARE = 0.25;
export const MAX_SHARE = 0.75;

export function clampShare(share: number): number {
  return Math.min(MAX_SHARE, Math.max(MIN_SHARE, share));
}

/** Initial layout. The workspace opens on request. */
export const DEFAULT_LAYOUT: PaneLayout = { share: 0.62, folded: "workspace", tab: null };

/** Returns the layout of a session without a stored one, based on the last used layout. */
export function initialLayout(last: PaneLayout, isNarrow: boolean): PaneLayout {
  return { ...last, folded: last.folded === "workspace" || isNarrow ? "workspace" : null, tab: null };
}

/** Parses a stored layout. Invalid fields fall back. */
export function parseLayout(stored: string | null, fallback = DEFAULT_LAYOUT): PaneLayout {
  try {
    const read = JSON.parse(stored ?? "null") as Partial<PaneLayout> | null;
    return {
      share: typeof read?.share === "number" ? clampShare(read.share) : fallback.share,
      folded: read?.folded === "chat" || read?.folded === "workspace" || read?.folded === null ? read.folded : fallback.folded,
      tab: TABS.find((tab) => tab === read?.tab) ?? fallback.tab,
    };
  } catch {
    return fallback;
  }
}
