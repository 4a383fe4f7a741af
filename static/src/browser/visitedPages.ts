// Pages that the agent and the user opened in the sandbox's browser, oldest first.

import type { ChatRow, ToolRow } from "../state/rows";
import type { ObservationExtras } from "../wire/event";

export interface VisitedPage extends Pick<ObservationExtras["browse"], "url" | "title" | "screenshot" | "html"> {
  key: string;
  byUser: boolean;
  console: string[];
  /** True for a page that was fetched without a browser. */
  isPlain: boolean;
}

type PageRow = ToolRow & { end: NonNullable<ToolRow["end"]> };

/** Returns the pages of the tool calls. Failed calls have none. */
export function visitedPages(rows: readonly ChatRow[]): VisitedPage[] {
  return rows.filter(isPage).map(visitedPage);
}

/** Returns true if there is any page to show. */
export function hasPages(rows: readonly ChatRow[]): boolean {
  return rows.some(isPage);
}

/** Returns the address that is being opened, if any. */
export function openedAddress(rows: readonly ChatRow[]): string | null {
  const row = rows.findLast((row): row is ToolRow => row.kind === "tool" && row.name === "browse" && row.end === null);
  return typeof row?.args.url === "string" ? row.args.url : null;
}

function isPage(row: ChatRow): row is PageRow {
  return row.kind === "tool" && row.name === "browse" && row.end?.outcome === "ok" && typeof row.end.extras.url === "string";
}

function visitedPage({ key, source, end }: PageRow): VisitedPage {
  const { url, title, screenshot, html, console: lines, plain } = end.extras as ObservationExtras["browse"];
  const console = Array.isArray(lines) ? lines.map(String) : [];
  return { key, byUser: source === "user", url, title, screenshot, html, console, isPlain: plain === true };
}
