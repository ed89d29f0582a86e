"""What cleaning is made of: tests of motion, pieces of trips, and the account of what was dropped."""
