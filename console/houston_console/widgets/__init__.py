"""What screens are drawn with: styled text, colour themes, the virtual line list, dialogs."""
