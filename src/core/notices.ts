/** What noria can tell an operator about: the values of `notify[].on`. */
export const NOTICE_EVENTS = ['not-ready', 'source-halted', 'budget-used', 'site-banned'] as const;
