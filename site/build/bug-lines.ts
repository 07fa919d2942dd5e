/** The lines that a bug has wrong, and the right ones, as steps of one small kernel: what its languages share. @module */

/** Steps by their names. */
export type Lines<Step extends string> = { readonly [S in Step]?: string };

/**
 * The lines of a bug. Steps that `right` leaves out are those of the plain kernel. A page shows the steps of `wrong`, some
 * of which are right and only say where the others stand.
 */
export interface Bug<Step extends string> {
  readonly right?: Lines<Step>;
  readonly wrong: Lines<Step>;
}

/** A bug in one language. */
export interface BugLines {
  /** The steps that differ, one after the other. */
  readonly right: string;
  readonly wrong: string;
  /** The whole kernel. */
  readonly programs: { readonly right: string; readonly wrong: string };
}

/**
 * Writes the lines and the programs of bugs.
 *
 * @param steps - the plain kernel, in the order of its steps
 * @param bugs - the bugs by their ids
 */
export function linesOf<Step extends string>(
  steps: Readonly<Record<Step, string>>,
  bugs: Readonly<Record<string, Bug<Step>>>,
): ReadonlyMap<string, BugLines> {
  const all = Object.keys(steps) as Step[];
  const joined = (lines: Lines<Step>, names: readonly Step[]) => names.flatMap((name) => lines[name] || []).join('\n');
  return new Map(
    Object.entries(bugs).map(([id, bug]) => {
      const names = all.filter((name) => bug.wrong[name] !== undefined);
      const right = { ...steps, ...bug.right };
      const wrong = { ...right, ...bug.wrong };
      const programs = { right: joined(right, all), wrong: joined(wrong, all) };
      return [id, { right: joined(right, names), wrong: joined(wrong, names), programs }];
    }),
  );
}
