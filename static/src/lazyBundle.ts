// Code that the first view does not need, in one lazily loaded file. Many small files would weigh
// more.

// The app is already loaded. The import makes the bundler emit one shared file instead of one for
// each set of entries.
import "./components/App";
export { ApprovalDock } from "./approvals/ApprovalDock";
export { CallReview } from "./approvals/CallReview";
export { ModeChooser } from "./approvals/ModeChooser";
export { PlanApproval } from "./approvals/PlanApproval";
export { RiskBadge } from "./approvals/RiskBadge";
export { SessionFacts } from "./components/SessionFacts";
export { Admin } from "./components/Admin";
export { AnsiText } from "./components/AnsiText";
export { ApiDocs } from "./components/ApiDocs";
export { Attachments } from "./components/Attachments";
export { BudgetSpent } from "./components/BudgetSpent";
export { CodeBlock } from "./components/CodeBlock";
export { Home } from "./components/Home";
export { ConversationResults } from "./components/ConversationResults";
export { Divider } from "./components/Divider";
export { ForkNote } from "./fork/ForkNote";
export { ForkParentLink } from "./fork/ForkParentLink";
export { MessageActions } from "./fork/MessageActions";
export { SessionGroups } from "./fork/SessionGroups";
export { EventReveal } from "./components/EventReveal";
export { ModelMenu } from "./components/ModelMenu";
export { RejectedRequests } from "./components/RejectedRequests";
export { Palette } from "./components/Palette";
export { Queue } from "./components/Queue";
export { Recording } from "./components/Recording";
export { SendMenu } from "./components/SendMenu";
export { SessionActions } from "./components/SessionActions";
export { SessionDialog } from "./components/SessionDialog";
export { Toast } from "./components/Toast";
export { Settings } from "./components/Settings";
export { Shortcuts } from "./components/Shortcuts";
export { SignedOut } from "./components/SignedOut";
export { followLink } from "./dom/followLink";
export { Thumbnail } from "./components/Thumbnail";
export { TaskFiles } from "./components/TaskFiles";
export { TaskOptions } from "./components/TaskOptions";
export { ToolBody } from "./components/ToolBody";
export { WorkspaceSheet } from "./components/WorkspaceSheet";
export { RetryButton, TurnActions } from "./components/TurnActions";
export { Workspace } from "./components/Workspace";
export { plainLines } from "./state/codeText";
export { startTask } from "./state/startTask";
export { mergeEarlier, readEarlierEvents } from "./state/earlierEvents";
export { uploadAttachment } from "./state/uploadAttachment";
