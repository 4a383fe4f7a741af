// Newest page of the sandbox's browser, its console, and the pages before it.

import { useState } from "preact/hooks";
import { EmptyState } from "../components/EmptyState";
import { pageSkeleton } from "../components/lazy";
import type { LiveSession } from "../state/liveSession";
import { BrowserPage } from "./BrowserPage";
import { PageStrip } from "./PageStrip";
import { openedAddress, visitedPages } from "./visitedPages";

export function BrowserTab({ live }: { live: LiveSession }) {
  const { rows } = live.state.value;
  const pages = visitedPages(rows);
  // Page that the reader went back to. `null`: the newest is followed.
  const [kept, setKept] = useState<string | null>(null);
  const newest = pages.at(-1);
  const page = pages.find(({ key }) => key === kept) ?? newest;
  const opened = openedAddress(rows);

  if (!page) {
    if (!live.isComplete) return pageSkeleton;
    return (
      <EmptyState icon="globe" title="No pages yet">
        Pages that the agent opens appear here.
      </EmptyState>
    );
  }
  return (
    <div class="browser-tab">
      <BrowserPage key={page.key} page={page} />
      <p class="under" role="status">
        {opened !== null && `Opening ${opened}…`}
      </p>
      {pages.length > 1 && <PageStrip pages={pages} shown={page} onShow={(chosen) => setKept(chosen === newest ? null : chosen.key)} />}
    </div>
  );
}
