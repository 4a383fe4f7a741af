// Table of live actors, each below its owner.

import { now, serverNow } from "../clock";
import { bytes, relativeTime } from "../format";
import type { ActorTreeRow } from "../state/actorTree";
import type { ActorRow } from "../wire/lazyRest";

export function ActorTable({ branches }: { branches: ActorTreeRow[] }) {
  if (branches.length === 0) return <p class="muted">No live actors</p>;
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
            <td class="number">{relativeTime(actor.since, serverNow() ?? now.value)}</td>
            <td class="number">{relativeTime(actor.last_active, serverNow() ?? now.value)}</td>
            <td class="number">{actor.handled.toLocaleString("en")}</td>
            <td class="number">{queue(actor)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Returns the queued messages. For a client socket, the unconfirmed bytes. */
function queue({ kind, queued }: ActorRow): string {
  if (queued === null || queued === undefined) return "–";
  return kind.endsWith("_socket") ? bytes(queued) : queued.toLocaleString("en");
}
