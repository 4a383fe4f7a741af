// Signed-in browsers, each with a button that signs it out.

import { useEffect, useState } from "preact/hooks";
import { now, serverNow } from "../clock";
import { relativeTime } from "../format";
import { listBrowsers, signOutBrowser, type SignedInRow } from "../wire/browsers";
import { RestError, signedOut } from "../wire/rest";
import { storeSecret } from "../wire/secret";
import { ErrorNotice } from "./ErrorNotice";

export function BrowserList() {
  const [rows, setRows] = useState<SignedInRow[] | null>(null);
  const [problem, setProblem] = useState("");

  const attempt = async (act: () => Promise<void>) => {
    try {
      await act();
      setRows(await listBrowsers());
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const load = () => void attempt(async () => {});
  useEffect(load, []);

  const remove = ({ id, current }: SignedInRow) =>
    attempt(async () => {
      try {
        await signOutBrowser(id);
      } catch (error) {
        // Another tab or the server was faster.
        if (!(error instanceof RestError && error.isNotFound)) throw error;
      }
      if (!current) return;
      storeSecret("");
      signedOut.value = true;
    });

  return (
    <section class="browsers" aria-label="Signed-in browsers">
      <h3>Signed-in browsers</h3>
      {problem && <ErrorNotice text={problem} onRetry={load} />}
      <ul>
        {rows?.map((row) => (
          <li key={row.id}>
            <span class="browser-name">
              {row.name}
              <span class="muted">{row.current ? "this browser" : `used ${relativeTime(row.last_seen_at, serverNow() ?? now.value)}`}</span>
            </span>
            <button type="button" class="button" aria-label={`Sign out ${row.name}`} onClick={() => void remove(row)}>
              Sign out
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
