// End of a turn: outcome, duration, cost, and below them what it changed.

import { costNote, costSoFar, duration } from "../format";
import type { TurnOutcome, TurnRow } from "../state/rows";
import { lazy } from "./lazy";

const TurnActions = lazy((later) => later.TurnActions);

const OUTCOMES: Record<TurnOutcome, string> = { finished: "Finished", failed: "Failed", interrupted: "Interrupted", budget: "Budget spent" };

/** Time from which the duration is shown, in milliseconds. */
const DURATION_FROM_MS = 1000;

export function TurnCard({ row }: { row: TurnRow }) {
  const cost = row.cost && costSoFar(row.cost);
  return (
    <div class={`row turn ${row.outcome}`}>
      <span class="turn-outcome">{OUTCOMES[row.outcome]}</span>
      {row.durationMs >= DURATION_FROM_MS && <span>{duration(row.durationMs)}</span>}
      {row.cost && cost && <span title={costNote(row.cost)}>{cost}</span>}
      <TurnActions row={row} />
    </div>
  );
}
