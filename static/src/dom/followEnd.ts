// Scroll position that follows the end of growing content while the reader is at the end.

/** Tolerance in pixels. Browsers round scroll positions, so smaller differences are not a move. */
const ROUNDING = 1;

/** Follow state of one scrolling box. */
export class EndFollower {
  private following = true;
  /** Scroll position at the last check. */
  private lastScrollTop = 0;
  private size = "";

  /** `near`: distance to the end, in pixels, that counts as being at the end. */
  constructor(private readonly near: number) {}

  /** Reports if the reader is at the end. */
  get isFollowing(): boolean {
    return this.following;
  }

  /**
   * Handles a scroll or an unfolded element. Any move upwards stops following; a move down to the
   * end resumes it.
   */
  readerMoved(box: HTMLElement): void {
    if (this.isResized(box)) this.laidOut(box);
    const moved = box.scrollTop - this.lastScrollTop;
    const distance = distanceToEnd(box);
    // A browser scrolls shortened content to its end by itself. The reader did not move.
    if (distance < ROUNDING) this.setFollowing(box, true);
    else if (distance >= this.near || moved < -ROUNDING) this.setFollowing(box, false);
    else if (moved > ROUNDING) this.setFollowing(box, true);
    // Small moves are not stored. A slow scroll would otherwise never exceed the tolerance in a
    // frame.
    if (Math.abs(moved) > ROUNDING) this.lastScrollTop = box.scrollTop;
  }

  /**
   * Scrolls to the new end, unless the reader scrolled up in this frame. That scroll event is still
   * to come.
   */
  contentGrew(box: HTMLElement): void {
    const isLeft = box.scrollTop < this.lastScrollTop - ROUNDING && distanceToEnd(box) >= ROUNDING;
    if (isLeft && !this.isResized(box)) this.following = false;
    this.laidOut(box);
  }

  /** Handles a new layout, for example a new width. Ignores scrolling done by the browser. */
  laidOut(box: HTMLElement): void {
    this.setFollowing(box, this.following);
    if (this.following) box.scrollTop = box.scrollHeight;
    this.lastScrollTop = box.scrollTop;
    this.size = sizeOf(box);
  }

  /** Stops following, so that the visible part stays in place. */
  leave(box: HTMLElement): void {
    this.setFollowing(box, false);
  }

  returnToEnd(box: HTMLElement): void {
    this.following = true;
    this.laidOut(box);
  }

  private isResized(box: HTMLElement): boolean {
    return this.size !== sizeOf(box);
  }

  /**
   * Disables scroll anchoring while following. Anchoring at the end would look like a reader who
   * scrolls up.
   */
  private setFollowing(box: HTMLElement, on: boolean): void {
    this.following = on;
    box.style.setProperty("overflow-anchor", on ? "none" : "auto");
  }
}

function distanceToEnd(box: HTMLElement): number {
  return box.scrollHeight - box.scrollTop - box.clientHeight;
}

function sizeOf(box: HTMLElement): string {
  return `${box.clientWidth}×${box.clientHeight}`;
}
