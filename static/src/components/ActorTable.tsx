// The live actors, a line each, below whom they belong to.

import { now } from "../clock";
import { bytes, relativeTime } from "../format";
import type { Branch } from "../state/actors";
import type { Actor } from "../wire/manage";

export function ActorTable({ branches }: { branches: Branch[] }) {
  if (branches.length === 0) return <p class="muted">No actor is alive.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Actor</th>
          <th>State</th>
          <th class="number">Age</th>
          <th class="number">Last active</th>
          <th class="number">Handled</th>
          <th class="number">Queued</th>
        </tr>
      </thead>
      <tbody>
        {branches.map(({ actor, depth }) => (
          <tr key={`${actor.kind}/${actor.id}`}>
            <td>
              <span class={`actor depth-${depth}`}>
                <strong>{actor.kind.replaceAll("_", " ")}</strong>
                {actor.kind === "session" && actor.session ? (
                  <a href={`/sessions/${actor.session}`}>{actor.id}</a>
                ) : (
                  <code>{actor.id}</code>
                )}
              </span>
            </td>
            <td>{actor.state ?? ""}</td>
            <td class="number">{relativeTime(actor.since, now.value)}</td>
            <td class="number">{relativeTime(actor.last_active, now.value)}</td>
            <td class="number">{actor.handled.toLocaleString("en")}</td>
            <td class="number">{queue(actor)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Messages that wait; where a client is served, what it has not confirmed yet. */
function queue({ kind, queued }: Actor): string {
  if (queued === null || queued === undefined) return "–";
  return kind.endsWith("_socket") ? bytes(queued) : queued.toLocaleString("en");
}
