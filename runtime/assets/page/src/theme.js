// Before the first paint: the theme that was chosen, so that nothing flashes.
try {
  const { theme } = JSON.parse(localStorage.getItem('bloomery.settings') ?? '{}');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch {
  // Storage is off or holds nonsense: the system's theme.
}
