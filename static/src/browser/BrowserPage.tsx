// One page of the browser: address, picture and console.

import { Thumbnail } from "../components/Thumbnail";
import type { VisitedPage } from "./visitedPages";

export function BrowserPage({ page }: { page: VisitedPage }) {
  const { url, title, screenshot, html, console: lines, isPlain } = page;
  const name = title || url;
  return (
    <section class="browser-page" aria-label={`Page ${name}`}>
      <p class="browser-address">
        <bdi>{url}</bdi>
        {html && (
          <a href={html} download="page.html">
            HTML
          </a>
        )}
      </p>
      {title && <h3 dir="auto">{title}</h3>}
      <div class="browser-picture" tabIndex={0} role="region" aria-label="Picture of the page">
        {screenshot ? <Thumbnail address={screenshot} name={name} /> : <p class="muted">{isPlain ? "Fetched without a browser: no picture" : "No picture of this page"}</p>}
      </div>
      {lines.length > 0 && (
        <details class="browser-console" open>
          <summary>Console ({lines.length})</summary>
          <ul>
            {lines.map((line, index) => (
              <li key={index} dir="auto">
                {line}
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}
