// Pages of the session, to look back at. The newest is followed live.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { VisitedPage } from "./visitedPages";

interface PageStripProps {
  pages: readonly VisitedPage[];
  shown: VisitedPage;
  onShow: (page: VisitedPage) => void;
}

export function PageStrip({ pages, shown, onShow }: PageStripProps) {
  const strip = useRef<HTMLElement>(null);
  const isNewest = shown === pages.at(-1);

  useLayoutEffect(() => {
    if (isNewest && strip.current) strip.current.scrollLeft = strip.current.scrollWidth;
  }, [isNewest, pages.length]);

  return (
    <nav class="page-strip" aria-label="Pages so far" ref={strip}>
      {pages.map((page, index) => (
        <button key={page.key} type="button" class="button" aria-current={page.key === shown.key ? "page" : undefined} title={page.url} onClick={() => onShow(page)}>
          {index + 1}. {page.title || page.url}
        </button>
      ))}
      {!isNewest && (
        <button type="button" class="button follow-newest" onClick={() => onShow(pages[pages.length - 1]!)}>
          Follow the newest
        </button>
      )}
    </nav>
  );
}
