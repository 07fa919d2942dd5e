// This runs before the first paint, so that another theme does not flash. Modules would run too late.
try {
  document.documentElement.dataset.theme = localStorage.getItem('theme') ?? '';
} catch {
  // The browser stores nothing for this page, so the theme follows the system.
}
