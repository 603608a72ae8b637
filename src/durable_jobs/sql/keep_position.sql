INSERT INTO search_positions (name, reached) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET reached = greatest(search_positions.reached, excluded.reached), updated_at = now()
