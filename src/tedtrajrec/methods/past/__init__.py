"""What past trips teach: pace, popular turns, missing links, and votes; and straight lines where they teach nothing."""
