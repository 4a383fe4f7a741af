// Changes of the workspace: files, diffs, comments on lines, and ways back.

import { useEffect, useRef } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import { EmptyState } from "../components/EmptyState";
import { ErrorNotice } from "../components/ErrorNotice";
import { pageSkeleton } from "../components/lazy";
import { plural } from "../format";
import type { LiveSession } from "../state/liveSession";
import { ChangedFileList } from "./ChangedFileList";
import { changeKeyDown, stepThrough } from "./changeKeys";
import { ChangesBar } from "./ChangesBar";
import { changesOf, type ChangesState } from "./changesState";
import type { ChangeSet, CheckpointPage } from "./checkpointsRest";
import { CommentStrip } from "./CommentStrip";
import { Differences } from "./Differences";
import { RepositoryBar } from "../repository/RepositoryBar";
import { RestoreDialog } from "./RestoreDialog";
import { RestoredNote } from "./RestoredNote";

export function ChangesTab({ live }: { live: LiveSession }) {
  const changes = changesOf(live.id);
  const pane = useRef<HTMLDivElement>(null);
  const readOnly = live.state.value.agentState === "ended";
  const list = changes.list.value;
  const diff = changes.diff.value;

  useEffect(() => changes.follow(live), [changes, live]);

  if (list && !list.offered) {
    return (
      <EmptyState icon="file" title="Changes are not recorded">
        <BacktickText text={list.reason ?? "The server keeps no checkpoints."} />
      </EmptyState>
    );
  }
  return (
    <div class="changes" ref={pane} onKeyDown={(event) => changeKeyDown(event, pane.current)}>
      <RepositoryBar live={live} mark={list} readOnly={readOnly} />
      <ChangesBar changes={changes} readOnly={readOnly} onStep={(what, step) => stepThrough(pane.current, what, step)} />
      <p class="visually-hidden" role="status">
        {diff && `${plural(diff.files.length + diff.more, "changed file")}, ${plural(diff.added, "line")} added, ${diff.removed} removed`}
      </p>
      {changes.problem.value && <ErrorNotice text={changes.problem.value} onRetry={() => void changes.load()} />}
      {list?.damage && <ErrorNotice text={`The checkpoints are damaged: ${list.damage}`} />}
      {changes.restored.value && <RestoredNote changes={changes} result={changes.restored.value} />}
      <Content changes={changes} list={list} diff={diff} readOnly={readOnly} />
      {!readOnly && <CommentStrip changes={changes} />}
      {changes.dialog.value && <RestoreDialog live={live} changes={changes} request={changes.dialog.value} />}
    </div>
  );
}

interface ContentProps {
  changes: ChangesState;
  list: CheckpointPage | null;
  diff: ChangeSet | null;
  readOnly: boolean;
}

function Content({ changes, list, diff, readOnly }: ContentProps) {
  if (!diff) {
    if (changes.problem.value) return null;
    if (changes.isLoading.value || !list) return pageSkeleton;
  }
  if (!diff || diff.files.length === 0) {
    return (
      <EmptyState icon="file" title={changes.scope.value === "seen" ? "Nothing new" : "No changes"}>
        Files that the agent or you change appear here.
      </EmptyState>
    );
  }
  return (
    <div class="changes-content">
      <ChangedFileList changes={changes} diff={diff} />
      <Differences changes={changes} items={list?.items ?? []} diff={diff} readOnly={readOnly} />
    </div>
  );
}
