// Before the first paint, so that a saved theme does not flash; a classic script, because modules run later.
try {
  document.documentElement.dataset.theme = localStorage.getItem('theme') ?? '';
} catch {
  // The browser keeps nothing for this page: it follows the system.
}
